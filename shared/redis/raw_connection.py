"""A low-overhead connection to Redis or Valkey for per-token traffic.

redis-py's asyncio client passes each command through a dozen coroutines and starts a timer per reply. On a host whose
cores and caches an engine keeps busy, that is most of the cost of a token. Here a command is one socket call and a
reply another, made when the caller polls. Nothing is awaited, so no task is woken.
"""

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Callable
from socket import socket
from typing import Any

import hiredis
from redis.connection import ConnectionPool, DefaultParser
from redis.exceptions import ConnectionError, InvalidResponse

Argument = str | bytes | int | float
"""Types of a command's arguments."""

_WOULD_BLOCK = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_READ = 64 * 1024
"""Size of a socket read in bytes."""


class RawConnection:
    """A connection to the store that can be reopened.

    It never retries and has no timeouts after :meth:`open`: only its owner knows what was lost and what is overdue.
    """

    def __init__(self, pool: ConnectionPool) -> None:
        """``pool`` is only used to construct connections."""
        self._pool = pool
        self._connection: Any = None
        self._socket: socket | None = None
        self._reader = hiredis.Reader()
        self._unread = bytearray(_READ)
        """The receive buffer, reused because allocating it costs more than the read."""
        self._unsent: deque[memoryview] = deque()
        """What the socket has not accepted yet, in order. Nothing of it is ever copied."""
        self._watched = False
        self.moved_at = 0.0
        """When bytes last moved in either direction (monotonic seconds)."""

    @property
    def database(self) -> int:
        """The number of the store's database that the connection uses."""
        return int(self._pool.connection_kwargs.get("db") or 0)

    @property
    def is_open(self) -> bool:
        """Whether the connection is open, as far as is known."""
        return self._socket is not None

    def fileno(self) -> int:
        """Return the socket's file descriptor, for ``select``. Raises :class:`ConnectionError` when not open."""
        return self._open_socket().fileno()

    async def open(self, *commands: tuple[str | bytes, ...]) -> None:
        """Connect, perform the handshake and run ``commands``, in a thread. An open connection is closed before.

        Raises :class:`redis.exceptions.RedisError` or :class:`OSError` when the store is unreachable, or refuses the
        handshake or a command.
        """
        self.close()
        connection: Any = self._pool.make_connection()
        try:
            await asyncio.to_thread(_prepare, connection, commands)
        except BaseException:
            connection.disconnect()
            raise
        self._connection, self._socket = connection, connection._sock
        connection._sock.setblocking(False)
        self._reader = hiredis.Reader(protocolError=InvalidResponse, replyError=DefaultParser.parse_error)

    def send(self, *command: Argument) -> None:
        """Send a command. What the socket does not accept at once is sent later by the event loop.

        Raises :class:`ConnectionError` when the connection is not open or has broken.
        """
        packed: bytes = hiredis.pack_command(command)  # type: ignore[arg-type] # its stub knows only pairs
        if self._unsent:
            self._unsent.append(memoryview(packed))
            return
        sent = self._try_send(packed)
        if sent < len(packed):
            self._unsent.append(memoryview(packed)[sent:])
            asyncio.get_running_loop().add_writer(self.fileno(), self._flush)

    def replies(self) -> list[Any]:
        """Return the complete replies that have arrived, in order, without waiting.

        Error replies are returned as redis-py's exceptions. Raises :class:`ConnectionError` when the connection is not
        open or has broken, and :class:`InvalidResponse` when the peer does not speak RESP.
        """
        connected, reader = self._open_socket(), self._reader
        try:
            while True:
                size = connected.recv_into(self._unread)
                if not size:
                    raise ConnectionError("the store has closed the connection")
                self.moved_at = time.monotonic()
                reader.feed(self._unread, 0, size)  # type: ignore[arg-type] # its stub knows no buffers
                # Data that TLS has already decrypted does not make the socket readable.
                if not (isinstance(connected, ssl.SSLSocket) and connected.pending()):
                    break
        except _WOULD_BLOCK:
            pass
        except OSError as error:
            raise ConnectionError(f"the connection to the store is broken: {error}") from error
        replies = []
        while (reply := reader.gets()) is not False:
            replies.append(reply)
        return replies

    def watch(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` whenever data has arrived, until :meth:`unwatch`. Raises :class:`ConnectionError` when not
        open."""
        asyncio.get_running_loop().add_reader(self.fileno(), callback)
        self._watched = True

    def unwatch(self) -> None:
        """Stop calling the callback of :meth:`watch`."""
        if self._watched and self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._watched = False

    def close(self) -> None:
        """Close the connection, if open. Unsent commands and unread replies are lost."""
        if self._socket is None:
            return
        self.unwatch()
        self._stop_sending()
        self._connection.disconnect()
        self._connection = self._socket = None

    def _open_socket(self) -> socket:
        if self._socket is None:
            raise ConnectionError("there is no connection to the store")
        return self._socket

    def _try_send(self, data: bytes | memoryview) -> int:
        """Send and return the number of bytes accepted. Raises :class:`ConnectionError` when the socket is broken."""
        try:
            return self._open_socket().send(data)
        except _WOULD_BLOCK:
            return 0
        except OSError as error:
            raise ConnectionError(f"the connection to the store is broken: {error}") from error

    def _flush(self) -> None:
        try:
            if sent := self._try_send(self._unsent[0]):
                self.moved_at = time.monotonic()
                self._unsent[0] = self._unsent[0][sent:]
            if not self._unsent[0]:
                self._unsent.popleft()
        except ConnectionError:
            # The next read reports it.
            self._unsent.clear()
        if not self._unsent:
            self._stop_sending()

    def _stop_sending(self) -> None:
        self._unsent.clear()
        if self._socket is not None:
            asyncio.get_running_loop().remove_writer(self._socket.fileno())


def _prepare(connection: Any, commands: tuple[tuple[str | bytes, ...], ...]) -> None:
    connection.connect()
    for command in commands:
        connection.send_command(*command)
        connection.read_response()
