"""A child that speaks first, and says back what it is told."""

import msgspec

from worker.ipc import ChildChannel

FIRST = [[number] * size for number, size in enumerate((1, 40_000, 3, 70_000, 2))]
"""What it says when it starts: more than one read brings, cut where reads end."""


def main() -> None:
    """Talk until the parent closes the channel."""
    channel: ChildChannel[list[int], list[int]] = ChildChannel.inherited(msgspec.msgpack.Decoder(list[int]))
    for message in FIRST:
        channel.send(message)
    while True:
        try:
            for message in channel.receive(None):
                channel.send(message)
        except EOFError:
            return


if __name__ == "__main__":
    main()
