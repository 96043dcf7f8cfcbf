"""A connection to Redis or Valkey of one's own, for what is said or heard a hundred times a second.

redis-py's asyncio client passes a command through a dozen coroutines and bounds each answer by a timer; beside an
engine that keeps every core busy and every cache full, that is most of what a token costs. Here a command is one call
of the socket, and an answer is one more, when somebody looks for it: nothing is awaited, so no task wakes.
"""

import asyncio
import ssl
from collections.abc import Callable
from socket import socket
from typing import Any

import hiredis
from redis.connection import ConnectionPool, DefaultParser
from redis.exceptions import ConnectionError, InvalidResponse

Argument = str | bytes | int | float
"""What a command may consist of."""

_NOT_NOW = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_READ = 64 * 1024
"""Bytes to ask the socket for at once."""


def pack_arguments(*arguments: Argument) -> bytes:
    """Return arguments as the store reads them, each a bulk string of RESP, to stand in a packed command behind
    :func:`pack_count` (https://redis.io/docs/latest/develop/reference/protocol-spec/)."""
    packed = _pack(arguments)
    return packed[packed.index(b"\n") + 1 :]


def pack_count(arguments: int) -> bytes:
    """Return how a packed command of so many ``arguments`` begins; its name is one of them."""
    return b"*%d\r\n" % arguments


def unpack(command: bytes) -> list[bytes]:
    """Return the arguments of a packed command."""
    reader = hiredis.Reader()
    reader.feed(command)
    arguments: list[bytes] = reader.gets()
    return arguments


def _pack(command: tuple[Argument, ...]) -> bytes:
    packed: bytes = hiredis.pack_command(command)  # type: ignore[arg-type] # its stub knows only pairs
    return packed


class RawConnection:
    """One connection, opened and closed as often as need be. It retries nothing: its holder knows what is lost."""

    def __init__(self, pool: ConnectionPool) -> None:
        """``pool`` makes the connections, and keeps none of them."""
        self._pool = pool
        self._connection: Any = None
        self._socket: socket | None = None
        self._reader = hiredis.Reader()
        self._unread = bytearray(_READ)
        """Where the socket's bytes go: taken anew for each read, so large a piece of memory would cost more than the
        read itself."""
        self._unsent = b""
        self._watched = False

    @property
    def is_open(self) -> bool:
        """Whether there is a connection, as far as we know."""
        return self._socket is not None

    def fileno(self) -> int:
        """The socket's number, which lets ``select`` wait for a line. Raises :class:`ConnectionError` when it is not
        open."""
        return self._open_socket().fileno()

    async def open(self, *commands: tuple[str | bytes, ...]) -> None:
        """Connect, greet the store and run ``commands``, in a thread; what was open is closed before.

        Raises :class:`redis.exceptions.RedisError` or :class:`OSError` when the store can't be reached, does not let
        us in, or refuses a command.
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
        """Send a command. Raises as :meth:`send_packed` does."""
        self.send_packed(_pack(command))

    def send_packed(self, packed: bytes) -> None:
        """Send a command as the store reads it; what the socket does not take at once follows as soon as it does.

        Raises :class:`ConnectionError` when the line is not open or has broken.
        """
        if self._unsent:
            self._unsent += packed
            return
        sent = self._try_send(packed)
        if sent < len(packed):
            self._unsent = packed[sent:]
            asyncio.get_running_loop().add_writer(self.fileno(), self._send_rest)

    def answers(self) -> list[Any]:
        """Take what has come, whole answers in order, without waiting. An exception among them, of the type that
        redis-py has for it, is how the store refuses a command.

        Raises :class:`ConnectionError` when the line is not open or has broken, and :class:`InvalidResponse` when the
        peer is no store.
        """
        wire, reader = self._open_socket(), self._reader
        try:
            while True:
                size = wire.recv_into(self._unread)
                if not size:
                    raise ConnectionError("the store has closed the connection")
                reader.feed(self._unread, 0, size)  # type: ignore[arg-type] # its stub knows no buffers
                # What TLS has decrypted already would not show on the socket.
                if not (isinstance(wire, ssl.SSLSocket) and wire.pending()):
                    break
        except _NOT_NOW:
            pass
        except OSError as error:
            raise ConnectionError(f"the connection to the store is broken: {error}") from error
        answers = []
        while (answer := reader.gets()) is not False:
            answers.append(answer)
        return answers

    def watch(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called whenever there is something to take, until :meth:`unwatch`. Raises
        :class:`ConnectionError` when the line is not open."""
        asyncio.get_running_loop().add_reader(self.fileno(), callback)
        self._watched = True

    def unwatch(self) -> None:
        """Tell nobody any more that something has come."""
        if self._watched and self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._watched = False

    def close(self) -> None:
        """End the connection, if there is one; what has not been sent or taken is lost."""
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

    def _try_send(self, data: bytes) -> int:
        """Return how many bytes the socket has taken. Raises :class:`ConnectionError` when it is broken."""
        try:
            return self._open_socket().send(data)
        except _NOT_NOW:
            return 0
        except OSError as error:
            raise ConnectionError(f"the connection to the store is broken: {error}") from error

    def _send_rest(self) -> None:
        try:
            self._unsent = self._unsent[self._try_send(self._unsent) :]
        except ConnectionError:
            # Whoever looks for the answer finds it out.
            self._unsent = b""
        if not self._unsent:
            self._stop_sending()

    def _stop_sending(self) -> None:
        self._unsent = b""
        if self._socket is not None:
            asyncio.get_running_loop().remove_writer(self._socket.fileno())


def _prepare(connection: Any, commands: tuple[tuple[str | bytes, ...], ...]) -> None:
    connection.connect()
    for command in commands:
        connection.send_command(*command)
        connection.read_response()
