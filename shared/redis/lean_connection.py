"""redis-py's connections to Redis or Valkey, made cheaper: every request needs a few commands before its first token.

redis-py packs arguments one by one in Python, starts a task for each command to bound the time of sending, and begins
with a read that is cancelled at once. Here hiredis packs, only a connection that is clogged is waited for, and nothing
is read that has not been asked for. What is said or heard with each token has :mod:`shared.redis.raw_connection`.
"""

import asyncio
from typing import Any

import hiredis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError, DataError, TimeoutError

_CLOGGED = 64 * 1024
"""Unsent bytes from which on sending waits for the peer; asyncio's own limit."""


class LeanConnection(AbstractConnection):
    """Packs and sends with little work of its own.

    Under uvloop, a connection that ends suddenly is a :class:`RuntimeError`; here it is a :class:`ConnectionError`
    under every loop.
    """

    async def on_connect(self) -> None:
        """Greet the store. Raises what redis-py raises when it does not let us in.

        What has just been connected needs no check of its health: one that fails, as without the right password,
        would connect again, and so on without end.
        """
        self.next_health_check = asyncio.get_running_loop().time() + self.health_check_interval
        await super().on_connect()

    async def can_read_destructive(self) -> bool:
        """Whether the connection is of no more use: the peer has closed it.

        redis-py asks before each command, and answers by a read that a timer cancels. There is nothing else to find:
        who leaves an answer unread closes the connection.
        """
        reader: asyncio.StreamReader | None = self._reader
        return reader is None or reader.at_eof()

    def pack_command(self, *args: Any) -> list[bytes]:
        """Return a command's bytes. Raises :class:`DataError` for an argument that is no text, bytes or number."""
        name = args[0]
        if " " in name if isinstance(name, str) else b" " in name:
            # Two words, such as SCRIPT LOAD, which the server wants apart.
            args = (*name.split(), *args[1:])
        try:
            return [hiredis.pack_command(args)]
        except TypeError as error:
            raise DataError(str(error)) from error

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        """Send ``command``. Raises :class:`ConnectionError` when the peer has closed the connection, and
        :class:`TimeoutError` when it takes no more bytes for as long as the connection's time limit."""
        if not self.is_connected:
            await self.connect()  # type: ignore[no-untyped-call]
        elif check_health:
            await self.check_health()  # type: ignore[no-untyped-call]
        writer: asyncio.StreamWriter = self._writer  # type: ignore[assignment]
        try:
            if isinstance(command, list):
                writer.writelines(command)
            else:
                writer.write(command.encode() if isinstance(command, str) else command)
            if writer.transport.get_write_buffer_size() >= _CLOGGED or writer.is_closing():
                async with asyncio.timeout(self.socket_timeout):
                    await writer.drain()
        except BaseException as error:
            await self.disconnect(nowait=True)
            if isinstance(error, asyncio.TimeoutError):
                raise TimeoutError("the store takes no more commands") from None
            if isinstance(error, OSError | RuntimeError):
                raise ConnectionError(f"the connection to the store is broken: {error}") from error
            raise


def lean(kind: type[AbstractConnection]) -> type[AbstractConnection]:
    """Return ``kind`` of connection (plain, TLS, Unix socket, Sentinel's), made lean."""
    return type(f"Lean{kind.__name__}", (LeanConnection, kind), {})
