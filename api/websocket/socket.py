"""The server's side of a WebSocket: messages and control frames over an upgraded HTTP connection."""

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, TextMessage

from api.connection_extension import Link

PING_INTERVAL = 20.0
"""Seconds without data from the client after which it gets a ping."""

MAX_WAITING = 16
"""Maximum number of messages that wait while an earlier one is processed."""

MAX_FRAMES = 1024
"""Maximum number of frames in one read. Each costs as much as a small message, even if it is empty."""


class CloseCode(IntEnum):
    """Why a WebSocket is closed (RFC 6455, 7.4.1)."""

    NORMAL = 1000
    GOING_AWAY = 1001
    UNSUPPORTED = 1003
    POLICY = 1008
    TOO_BIG = 1009
    INTERNAL = 1011


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketBounds:
    """The limits of a WebSocket: times in seconds, sizes in bytes."""

    max_message: int
    """Maximum size of a message, and of all messages that wait."""
    message_timeout: float
    """For receiving a message, from its first byte."""
    client_timeout: float
    """For a client to answer a ping, and to receive what was sent."""


class WebSocket:
    """One WebSocket, the :class:`api.connection_extension.Tunnel` of its connection.

    Nothing is compressed, so a message never takes more memory than was sent. Reading never pauses, so a disconnect is
    detected at once.
    """

    def __init__(self, link: Link, bounds: SocketBounds) -> None:
        self._link = link
        self._bounds = bounds
        self._frames = Connection(ConnectionType.SERVER)
        self._loop = asyncio.get_running_loop()
        self._last_received = self._loop.time()
        self._pinged = False
        self._partial = bytearray()
        self._partial_since: float | None = None
        self._waiting: deque[bytes] = deque()
        self._waiting_size = 0
        self._arrived = asyncio.Event()
        self._ending = False

    async def message(self) -> bytes | None:
        """Return the next message; None if the server shuts down."""
        while not self._ending and not self._waiting:
            self._arrived.clear()
            await self._arrived.wait()
        if self._ending:
            return None
        message = self._waiting.popleft()
        self._waiting_size -= len(message)
        return message

    async def send(self, messages: Iterable[bytes]) -> None:
        """Send text messages, and wait while the client is slow. One that is slow for too long is disconnected."""
        if self._link.is_closing() or self._frames.state is not ConnectionState.OPEN:
            return
        self._link.write(b"".join(self._frames.send(TextMessage(data=message.decode())) for message in messages))
        if self._link.write_paused:
            try:
                async with asyncio.timeout(self._bounds.client_timeout):
                    await self._link.drain()
            except TimeoutError:
                self._link.abort()

    def close(self, code: int, reason: str = "") -> None:
        """Close the WebSocket and its connection."""
        if not self._link.is_closing():
            self._link.write(self._frames.send(CloseConnection(code=code, reason=reason)))
            self._link.close()

    def set_idle(self, *, idle: bool) -> None:
        """Mark the connection as one that new connections may replace at the connection limit, or as busy."""
        self._link.set_idle(idle=idle)

    # Called by the connection.

    def receive(self, data: bytes) -> None:
        """Process ``data``."""
        self._last_received = self._loop.time()
        self._pinged = False
        self._frames.receive_data(data)
        for count, event in enumerate(self._frames.events()):
            match event:
                case TextMessage():
                    self._take(event)
                case BytesMessage():
                    self.close(CloseCode.UNSUPPORTED, "messages must be text")
                case Ping() if not self._link.write_paused:
                    self._link.write(self._frames.send(event.response()))
                case CloseConnection():
                    # The client's, or that of an invalid frame.
                    self.close(event.code, event.reason or "")
                case _:
                    pass
            if count >= MAX_FRAMES:
                self.close(CloseCode.POLICY, "too many small frames")
            if self._link.is_closing():
                return

    def tick(self, now: float) -> None:
        """Check the deadlines at the time ``now``, in seconds of the event loop's clock."""
        silence = now - self._last_received
        if self._partial_since is not None and now - self._partial_since > self._bounds.message_timeout:
            self.close(CloseCode.POLICY, "a message was received too slowly")
        elif silence > PING_INTERVAL + self._bounds.client_timeout:
            self._link.abort()
        elif silence > PING_INTERVAL and not self._pinged and not self._link.write_paused:
            self._pinged = True
            self._link.write(self._frames.send(Ping()))

    def shut_down(self) -> None:
        """Make :meth:`message` return None."""
        self._ending = True
        self._arrived.set()

    def _take(self, event: TextMessage) -> None:
        self._partial += event.data.encode()
        if len(self._partial) > self._bounds.max_message:
            self.close(CloseCode.TOO_BIG, f"messages must not be larger than {self._bounds.max_message} bytes")
        elif not event.message_finished:
            self._partial_since = self._partial_since or self._last_received
        else:
            self._add(bytes(self._partial))
            self._partial.clear()
            self._partial_since = None

    def _add(self, message: bytes) -> None:
        self._waiting_size += len(message)
        if len(self._waiting) >= MAX_WAITING or (self._waiting and self._waiting_size > self._bounds.max_message):
            self.close(CloseCode.POLICY, "too many messages are waiting")
            return
        self._waiting.append(message)
        self._arrived.set()
