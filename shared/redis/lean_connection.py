"""redis-py connections with less overhead per command.

redis-py packs arguments one by one in Python, starts a task per command to limit the time of sending, and begins with a
read that it cancels at once. Here hiredis packs the arguments, sending waits only when the write buffer is full, and
there is no speculative read. Per-token traffic uses :mod:`shared.redis.raw_connection` instead.
"""

import asyncio
from typing import Any

import hiredis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError, DataError, TimeoutError

_CLOGGED = 64 * 1024
"""Unsent bytes from which sending waits for the peer; asyncio's own limit."""


class LeanConnection(AbstractConnection):
    """A redis-py connection with cheaper packing and sending.

    uvloop raises :class:`RuntimeError` for a connection that ends suddenly; here it is a :class:`ConnectionError` under
    every event loop.
    """

    async def on_connect(self) -> None:
        """Perform the handshake. Raises what redis-py raises when the store refuses it.

        Skips the health check of the new connection: a failing one, as with a wrong password, would reconnect in an
        endless loop.
        """
        self.next_health_check = asyncio.get_running_loop().time() + self.health_check_interval
        await super().on_connect()

    async def can_read_destructive(self) -> bool:
        """Return whether the peer has closed the connection.

        redis-py calls this before each command, and implements it by a read with a timeout. The read is not needed:
        a caller that leaves a reply unread closes the connection.
        """
        reader: asyncio.StreamReader | None = self._reader
        return reader is None or reader.at_eof()

    def pack_command(self, *args: Any) -> list[bytes]:
        """Return a command's bytes. Raises :class:`DataError` for arguments other than text, bytes and numbers."""
        name = args[0]
        if " " in name if isinstance(name, str) else b" " in name:
            # The server expects two words, such as SCRIPT LOAD, as two arguments.
            args = (*name.split(), *args[1:])
        try:
            return [hiredis.pack_command(args)]
        except TypeError as error:
            raise DataError(str(error)) from error

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        """Send ``command``. Raises :class:`ConnectionError` when the peer has closed the connection, and
        :class:`TimeoutError` when it accepts no data for the connection's timeout."""
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
    """Return a lean subclass of a connection class (plain, TLS, Unix socket, Sentinel)."""
    return type(f"Lean{kind.__name__}", (LeanConnection, kind), {})
