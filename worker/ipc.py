"""Child processes of the supervisor, and the MessagePack stream between them and it.

Messages are length-prefixed (4 bytes, big endian) on a socket pair. The supervisor's end is asyncio; the
child's end is blocking and can be polled, because a child is one thread that computes between messages.
"""

import asyncio
import ctypes
import os
import select
import signal
import socket
import struct
import sys
from collections.abc import AsyncIterator, Callable
from typing import Generic, TypeVar

import msgspec

from shared.runtime.processes import module_command

_LENGTH = struct.Struct(">I")
_PR_SET_PDEATHSIG = 1
_READ = 1 << 16
"""Bytes that a child asks for at once; memory for many more would be had from the system anew each time."""
_CHANNEL_VARIABLE = "VINOQUEUE_CHANNEL_FD"

In = TypeVar("In")
Out = TypeVar("Out")


class Inbox(Generic[In]):
    """Makes messages of the bytes of a stream."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[In]) -> None:
        self._decoder = decoder
        self._rest = b""

    def feed(self, data: bytes | memoryview) -> list[In]:
        """Return the messages that are complete with ``data``, which what is :class:`msgspec.Raw` in them still refers
        to. Raises :class:`msgspec.DecodeError` on foreign bytes."""
        if self._rest:
            data = self._rest + data
        messages = []
        start = 0
        view = memoryview(data)
        while len(data) - start >= 4:
            (length,) = _LENGTH.unpack_from(data, start)
            end = start + 4 + length
            if len(data) < end:
                break
            messages.append(self._decoder.decode(view[start + 4 : end]))
            start = end
        self._rest = bytes(view[start:])
        return messages


class ChildChannel(Generic[In, Out]):
    """The child's end: receives ``In`` messages, sends ``Out`` messages."""

    def __init__(self, connection: socket.socket, decoder: msgspec.msgpack.Decoder[In]) -> None:
        self._connection = connection
        self._inbox = Inbox(decoder)
        self._encoder = msgspec.msgpack.Encoder()

    @classmethod
    def inherited(cls, decoder: msgspec.msgpack.Decoder[In]) -> "ChildChannel[In, Out]":
        """Open the channel that :meth:`Child.start` handed to this process, and tie its life to the parent's.

        Raises :class:`KeyError` when the process was not started that way.
        """
        die_with_parent()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        connection = socket.socket(fileno=int(os.environ.pop(_CHANNEL_VARIABLE)))
        connection.setblocking(True)
        return cls(connection, decoder)

    def send(self, message: Out) -> None:
        """Send one message; blocks while the parent does not read."""
        body = self._encoder.encode(message)
        self._connection.sendall(_LENGTH.pack(len(body)) + body)

    def receive(self, timeout: float | None) -> list[In]:
        """Return the messages that have arrived, waiting at most ``timeout`` seconds (None: for ever) for the first.

        Raises :class:`EOFError` when the parent has closed its end.
        """
        messages: list[In] = []
        while not messages:
            ready, _, _ = select.select([self._connection], [], [], timeout)
            if not ready:
                return []
            data = self._connection.recv(_READ)
            if not data:
                raise EOFError("the parent process has closed the channel")
            messages = self._inbox.feed(data)
        return messages


class _MessageProtocol(asyncio.BufferedProtocol, Generic[In]):
    """The parent's end: hands messages to a listener as they come, or gathers them for the one who iterates."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[In]) -> None:
        self._inbox = Inbox(decoder)
        self._read = memoryview(bytearray(_READ))
        """Where bytes arrive: had anew for each read, memory for a step's report would cost more than its decoding."""
        self._arrived = asyncio.Event()
        self._messages: list[In] = []
        self._listener: Callable[[In], None] | None = None
        self._error: Exception | None = None
        self.ended = False

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._read

    def buffer_updated(self, nbytes: int) -> None:
        data = self._read[:nbytes]
        if self._listener is not None:
            self._hand_over(self._inbox.feed(data), self._listener)
        elif messages := self._inbox.feed(bytes(data)):
            self._messages += messages
            self._arrived.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.ended = True
        self._arrived.set()

    async def messages(self) -> list[In]:
        """What has arrived since the last time, at least one message; none when the child has closed its end."""
        while not self._messages and not self.ended:
            self._arrived.clear()
            await self._arrived.wait()
        messages, self._messages = self._messages, []
        return messages

    async def listen(self, listener: Callable[[In], None]) -> None:
        """Call ``listener`` with each message until the child closes its end, or raise what ``listener`` raises."""
        self._listener = listener
        messages, self._messages = self._messages, []
        self._hand_over(messages, listener)
        while not self.ended and self._error is None:
            self._arrived.clear()
            await self._arrived.wait()
        if self._error is not None:
            raise self._error

    def _hand_over(self, messages: list[In], listener: Callable[[In], None]) -> None:
        if self._error is not None:
            return
        try:
            for message in messages:
                listener(message)
        except Exception as error:
            self._error = error
            self._arrived.set()


class Child(Generic[In, Out]):
    """A child process as its parent sees it: send ``Out`` messages, iterate over ``In`` messages.

    The child dies with its parent, however the parent ends (Linux).
    """

    def __init__(self, module: str, arguments: list[str], decoder: msgspec.msgpack.Decoder[In]) -> None:
        """``module`` runs as ``python -m module arguments...`` and opens :meth:`ChildChannel.inherited`."""
        self._module = module
        self._arguments = arguments
        self._decoder = decoder
        self._encoder = msgspec.msgpack.Encoder()
        self._process: asyncio.subprocess.Process | None = None
        self._transport: asyncio.Transport | None = None
        self._ear: _MessageProtocol[In] | None = None

    @property
    def pid(self) -> int | None:
        """Process id, once started."""
        return self._process.pid if self._process else None

    async def start(self) -> None:
        """Start the process. Raises :class:`OSError` when that fails."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                *module_command(self._module, *self._arguments),
                pass_fds=[theirs.fileno()],
                env={**os.environ, _CHANNEL_VARIABLE: str(theirs.fileno())},
                stdin=asyncio.subprocess.DEVNULL,
            )
        self._transport, self._ear = await asyncio.get_running_loop().create_connection(
            lambda: _MessageProtocol(self._decoder), sock=ours
        )

    def send(self, message: Out) -> None:
        """Queue one message; lost without a word if the child is dead, which the iteration then tells."""
        if self._transport is not None and not self._transport.is_closing():
            body = self._encoder.encode(message)
            self._transport.write(_LENGTH.pack(len(body)) + body)

    async def messages(self) -> AsyncIterator[In]:
        """Yield messages until the child closes its end or dies.

        Raises :class:`RuntimeError` when the child was not started.
        """
        ear = self._ear_of_started()
        while messages := await ear.messages():
            for message in messages:
                yield message

    async def listen(self, listener: Callable[[In], None]) -> None:
        """Call ``listener`` with each message until the child closes its end or dies: cheaper than :meth:`messages`,
        because no task wakes for a message. What is :class:`msgspec.Raw` in a message is only good during the call.

        Raises what ``listener`` raises, after which nothing more is handed over, and :class:`RuntimeError` when the
        child was not started.
        """
        await self._ear_of_started().listen(listener)

    async def stop(self, patience: float = 2.0) -> int:
        """End the process: by itself when it sees the channel closed, else killed after ``patience`` seconds.

        Returns its exit code (negative: the signal that ended it), or 0 if it was never started.
        """
        if self._transport is not None:
            self._transport.close()
        if self._process is None:
            return 0
        try:
            return await asyncio.wait_for(self._process.wait(), patience)
        except TimeoutError:
            self.kill()
            return await self._process.wait()

    def kill(self) -> None:
        """End the process at once."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    def _ear_of_started(self) -> _MessageProtocol[In]:
        if self._ear is None:
            raise RuntimeError("the child process has not been started")
        return self._ear


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies. Does nothing on systems other than Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
