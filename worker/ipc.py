"""Subprocesses of the supervisor, and the MessagePack stream between the two.

Messages are length-prefixed (4 bytes, big endian) on a socket pair. The supervisor's end is asyncio. The child's end
is blocking with a timeout, because a child is a single thread that computes between messages.
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
_READ_SIZE = 1 << 16
"""Size of the read buffers in bytes. A much larger one would be mapped and unmapped by malloc on every read."""
_CHANNEL_VARIABLE = "VINOQUEUE_CHANNEL_FD"

In = TypeVar("In")
Out = TypeVar("Out")


class Inbox(Generic[In]):
    """Incremental decoder of a stream of length-prefixed messages."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[In]) -> None:
        self._decoder = decoder
        self._partial = b""

    def feed(self, data: bytes | memoryview) -> list[In]:
        """Return the messages completed by ``data``.

        :class:`msgspec.Raw` fields of the messages refer to the memory of ``data``. Raises
        :class:`msgspec.DecodeError` on invalid bytes.
        """
        if self._partial:
            data = self._partial + data
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
        self._partial = bytes(view[start:])
        return messages


class ChildChannel(Generic[In, Out]):
    """The child's end of the channel: receives ``In`` messages, sends ``Out`` messages."""

    def __init__(self, connection: socket.socket, decoder: msgspec.msgpack.Decoder[In]) -> None:
        self._connection = connection
        self._inbox = Inbox(decoder)
        self._encoder = msgspec.msgpack.Encoder()

    @classmethod
    def inherited(cls, decoder: msgspec.msgpack.Decoder[In]) -> "ChildChannel[In, Out]":
        """Open the channel that :meth:`Child.start` passed to this process, which from now on dies with its parent.

        Raises :class:`KeyError` when the process was not started that way.
        """
        die_with_parent()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        connection = socket.socket(fileno=int(os.environ.pop(_CHANNEL_VARIABLE)))
        connection.setblocking(True)
        return cls(connection, decoder)

    def send(self, message: Out) -> None:
        """Send one message. Blocks while the parent does not read."""
        body = self._encoder.encode(message)
        self._connection.sendall(_LENGTH.pack(len(body)) + body)

    def receive(self, timeout: float | None) -> list[In]:
        """Return the received messages, waiting at most ``timeout`` seconds (None: no limit) for the first.

        Raises :class:`EOFError` when the parent has closed its end.
        """
        messages: list[In] = []
        while not messages:
            ready, _, _ = select.select([self._connection], [], [], timeout)
            if not ready:
                return []
            data = self._connection.recv(_READ_SIZE)
            if not data:
                raise EOFError("the parent process has closed the channel")
            messages = self._inbox.feed(data)
        return messages


class _MessageProtocol(asyncio.BufferedProtocol, Generic[In]):
    """The parent's end of the channel: passes messages to a listener, or buffers them for :meth:`messages`."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[In]) -> None:
        self._inbox = Inbox(decoder)
        self._read_buffer = memoryview(bytearray(_READ_SIZE))
        """Reused for every read: allocating a buffer would cost more than decoding a step's report."""
        self._arrived = asyncio.Event()
        self._messages: list[In] = []
        self._listener: Callable[[In], None] | None = None
        self._error: Exception | None = None
        self.ended = False

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        data = self._read_buffer[:nbytes]
        if self._listener is not None:
            self._deliver(self._inbox.feed(data), self._listener)
        elif messages := self._inbox.feed(bytes(data)):
            self._messages += messages
            self._arrived.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.ended = True
        self._arrived.set()

    async def messages(self) -> list[In]:
        """Wait for messages and return all that are buffered. Empty when the child has closed its end."""
        while not self._messages and not self.ended:
            self._arrived.clear()
            await self._arrived.wait()
        messages, self._messages = self._messages, []
        return messages

    async def listen(self, listener: Callable[[In], None]) -> None:
        """Call ``listener`` with each message until the child closes its end, or raise what ``listener`` raises."""
        self._listener = listener
        messages, self._messages = self._messages, []
        self._deliver(messages, listener)
        while not self.ended and self._error is None:
            self._arrived.clear()
            await self._arrived.wait()
        if self._error is not None:
            raise self._error

    def _deliver(self, messages: list[In], listener: Callable[[In], None]) -> None:
        if self._error is not None:
            return
        try:
            for message in messages:
                listener(message)
        except Exception as error:
            self._error = error
            self._arrived.set()


class Child(Generic[In, Out]):
    """The parent's handle of a child process: sends ``Out`` messages, receives ``In`` messages.

    On Linux, the kernel kills the child when its parent dies, however it dies.
    """

    def __init__(self, module: str, arguments: list[str], decoder: msgspec.msgpack.Decoder[In]) -> None:
        """``module`` is run as ``python -m module arguments...`` and must open :meth:`ChildChannel.inherited`."""
        self._module = module
        self._arguments = arguments
        self._decoder = decoder
        self._encoder = msgspec.msgpack.Encoder()
        self._process: asyncio.subprocess.Process | None = None
        self._transport: asyncio.Transport | None = None
        self._protocol: _MessageProtocol[In] | None = None

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
        self._transport, self._protocol = await asyncio.get_running_loop().create_connection(
            lambda: _MessageProtocol(self._decoder), sock=ours
        )

    def send(self, message: Out) -> None:
        """Queue one message.

        If the child is dead, the message is dropped silently; the death shows as the end of the messages.
        """
        if self._transport is not None and not self._transport.is_closing():
            body = self._encoder.encode(message)
            self._transport.write(_LENGTH.pack(len(body)) + body)

    async def messages(self) -> AsyncIterator[In]:
        """Yield messages until the child closes its end or dies.

        Raises :class:`RuntimeError` when the child was not started.
        """
        protocol = self._started_protocol()
        while messages := await protocol.messages():
            for message in messages:
                yield message

    async def listen(self, listener: Callable[[In], None]) -> None:
        """Call ``listener`` with each message until the child closes its end or dies.

        Cheaper than :meth:`messages`, because no task is woken per message. :class:`msgspec.Raw` fields of a message
        are valid only during the call.

        Raises what ``listener`` raises, after which no more messages are delivered, and :class:`RuntimeError` when
        the child was not started.
        """
        await self._started_protocol().listen(listener)

    async def stop(self, patience: float = 2.0) -> int:
        """Close the channel, which ends the process; kill it after ``patience`` seconds.

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
        """Kill the process."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    def _started_protocol(self) -> _MessageProtocol[In]:
        if self._protocol is None:
            raise RuntimeError("the child process has not been started")
        return self._protocol


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies. Does nothing on systems other than Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
