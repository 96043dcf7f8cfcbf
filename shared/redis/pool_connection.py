"""Connections of redis-py's pool that leave a server that takes no writes any more."""

import re
from collections.abc import Iterable
from typing import Any

from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ReadOnlyError, ResponseError

_NO_WRITES = re.compile(r"(Transaction discarded because of: )?(READONLY|NOREPLICAS) ")


def takes_no_writes(error: Exception) -> bool:
    """Return whether ``error`` is the reply of a server that is no longer the master, or about to be replaced."""
    return isinstance(error, ReadOnlyError) or _NO_WRITES.match(str(error)) is not None


class PoolConnection(AbstractConnection):
    """Mixin for redis-py's connections: one that may lead to a demoted server is opened again before its next use.

    uvloop's error for writing to a closed connection becomes one that redis-py knows and retries.
    """

    is_stale = False

    async def connect(self) -> None:
        """Open the connection, if it is not open."""
        if self.is_stale:
            self.is_stale = False
            await self.disconnect()
        await super().connect()  # type: ignore[no-untyped-call] # untyped in redis-py

    async def read_response(self, *arguments: Any, **options: Any) -> Any:
        """Return a reply. Raises what redis-py raises."""
        try:
            return await super().read_response(*arguments, **options)
        except ResponseError as error:
            self.is_stale |= takes_no_writes(error)
            raise

    async def _send_packed_command(self, command: Iterable[bytes]) -> None:
        try:
            await super()._send_packed_command(command)
        except RuntimeError as error:
            raise ConnectionResetError(str(error)) from error


def reopen(pool: ConnectionPool) -> None:
    """Have each connection of ``pool`` opened again before its next use. It consists of :class:`PoolConnection`."""
    connections: Iterable[Any] = (*pool._available_connections, *pool._in_use_connections)
    for connection in connections:
        connection.is_stale = True
