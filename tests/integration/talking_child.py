"""A child process that sends a few messages and then echoes what it receives."""

import os
import sys
from typing import Generic, TypeVar

import msgspec

from worker.processes.channel import CHANNEL_VARIABLE, ChildChannel
from worker.processes.messages import LoadFailed

EARLY = [[number] * size for number, size in enumerate((1, 40_000))]
LATE = [[number] * size for number, size in enumerate((3, 70_000, 2))]
"""The numbers that it sends before and after it is ready: more than one read takes, and cut where reads end."""

Body = TypeVar("Body")


class TalkerOptions(msgspec.Struct, frozen=True):
    """Options of the child. ``fails``: it can't load. ``malformed``: it only sends bytes that are no message."""

    fails: bool = False
    malformed: bool = False


class Numbers(msgspec.Struct, Generic[Body], array_like=True, tag=1):
    """A message in both directions."""

    body: Body


class TalkerReady(msgspec.Struct, array_like=True, tag=2):
    """The child has loaded."""


TalkerMessage = Numbers[Body] | TalkerReady | LoadFailed


def main() -> None:
    """Serve until the parent closes the channel."""
    options = msgspec.json.decode(sys.argv[1], type=TalkerOptions)
    wire = int(os.environ[CHANNEL_VARIABLE])
    channel: ChildChannel[Numbers[list[int]], TalkerMessage[list[int]]] = ChildChannel.inherited(
        msgspec.msgpack.Decoder(Numbers[list[int]])
    )
    if options.fails:
        channel.send(LoadFailed("there is nothing to load"))
        return
    if options.malformed:
        os.write(wire, b"\0\0\0\1\xc1")  # MessagePack never uses 0xC1
        channel.serve(lambda message: message)
        return
    for body in EARLY:
        channel.send(Numbers(body))
    channel.send(TalkerReady())
    for body in LATE:
        channel.send(Numbers(body))
    channel.serve(lambda message: message)


if __name__ == "__main__":
    main()
