"""The subprocess's end of its channel to the supervisor, and the loop of one that replies to calls.

It blocks: a subprocess is a single thread that computes between messages.
"""

import logging
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from shared.protocol.errors import Problem, ProblemKind, RequestRefused
from shared.runtime.processes import die_with_parent
from worker.processes.messages import READ_SIZE, CallRefused, Loaded, LoadFailed, MessageReader, Replied, encode_message

CHANNEL_VARIABLE = "VINOQUEUE_CHANNEL_FD"
"""Environment variable with the channel's file descriptor."""

_MAX_PARTIAL_WAIT = 0.05
"""Maximum number of seconds to wait for more of a message of which a part has been received.

A message with images exceeds the socket's buffers. Without waiting, each poll would receive another part of it, and the
engine would compute a step between two polls.
"""

In = TypeVar("In")
Out = TypeVar("Out")


class ChildChannel(Generic[In, Out]):
    """Receives ``In`` messages from the supervisor and sends ``Out`` messages to it."""

    def __init__(self, connection: socket.socket, decoder: msgspec.msgpack.Decoder[In]) -> None:
        self._connection = connection
        self._reader = MessageReader(decoder)

    @classmethod
    def inherited(cls, decoder: msgspec.msgpack.Decoder[In]) -> "ChildChannel[In, Out]":
        """Open the channel that :class:`~worker.processes.child.ChildProcess` passed to this process, which from now
        on dies with its parent.

        Raises :class:`KeyError` when the process was not started that way.
        """
        die_with_parent()
        # Ctrl-C and a hang-up reach all processes of a terminal; the supervisor ends its subprocesses in order.
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        connection = socket.socket(fileno=int(os.environ.pop(CHANNEL_VARIABLE)))
        connection.setblocking(True)
        return cls(connection, decoder)

    def send(self, message: Out) -> None:
        """Send one message. Blocks while the supervisor does not read.

        Raises :class:`ConnectionError` when the supervisor has closed its end.
        """
        self._connection.sendall(encode_message(message))

    def receive(self, timeout: float | None) -> list[In]:
        """Return all messages that have been sent, waiting at most ``timeout`` seconds (None: no limit) for the first.

        Waits a moment longer for the rest of a message. Raises :class:`EOFError` or :class:`ConnectionError` when the
        supervisor has closed its end.
        """
        messages: list[In] = []
        while True:
            ready, _, _ = select.select([self._connection], [], [], self._wait(0 if messages else timeout))
            if not ready:
                return messages
            data = self._connection.recv(READ_SIZE)
            if data:
                messages += self._reader.feed(data)
            elif messages:
                return messages
            else:
                raise EOFError("the supervisor has closed the channel")

    def _wait(self, timeout: float | None) -> float | None:
        if timeout is None or not self._reader.partial:
            return timeout
        return max(timeout, _MAX_PARTIAL_WAIT)

    def serve(self, handle: Callable[[In], Out]) -> None:
        """Reply to each message with what ``handle`` returns, until the supervisor closes its end."""
        try:
            while True:
                for message in self.receive(None):
                    self.send(handle(message))
        except (EOFError, ConnectionError):
            pass


Options = TypeVar("Options")
Call = TypeVar("Call")
Reply = TypeVar("Reply")

_log = logging.getLogger(__name__)


def serve(
    options: type[Options],
    decoder: msgspec.msgpack.Decoder[Call],
    load: Callable[[Options], Callable[[Call], Reply]],
) -> int:
    """Serve calls until the supervisor closes the channel. Returns the exit code.

    ``load`` returns the function that computes replies. It may raise :class:`RequestRefused`. An exception of ``load``
    is reported to the supervisor.
    """
    channel: ChildChannel[Call, Replied[Reply] | CallRefused | Loaded | LoadFailed]
    channel = ChildChannel.inherited(decoder)
    try:
        compute = load(msgspec.json.decode(sys.argv[1], type=options))
    except Exception as error:
        channel.send(LoadFailed(str(error)))
        return 1
    channel.send(Loaded())

    def reply(message: Call) -> Replied[Reply] | CallRefused:
        began = time.process_time()
        try:
            body = compute(message)
        except RequestRefused as refusal:
            problem = refusal.problem
        except Exception as error:
            # An unexpected error in one call must not end the process.
            _log.exception("a call failed")
            text = f"The worker failed at this request: {type(error).__name__}."
            problem = Problem(kind=ProblemKind.INTERNAL, message=text)
        else:
            return Replied(body, time.process_time() - began)
        return CallRefused(problem, time.process_time() - began)

    channel.serve(reply)
    return 0
