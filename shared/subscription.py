"""Hearing one channel of Redis or Valkey for as long as the connection holds."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from arq.connections import ArqRedis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError

PING_AFTER = 5.0
"""Seconds of silence after which the store is asked whether it is still there; as many again may pass until it
answers. Keep-alive finds a host that has gone; this finds a store that hangs."""


class Subscription:
    """What comes on a channel. redis-py's own reader would open a new connection after each silence of the time limit
    for answers, deaf while it does."""

    def __init__(self, connection: AbstractConnection) -> None:
        self._connection = connection

    async def hear(self) -> bytes:
        """Wait for the next message. Raises :class:`redis.exceptions.RedisError` or :class:`OSError` when the
        connection is broken; messages may be lost then."""
        asked = False
        while True:
            response = await self._connection.read_response(timeout=PING_AFTER, push_request=True)
            if response is None:
                if asked:
                    raise ConnectionError("the store does not answer")
                asked = True
                await self._connection.send_command("PING", check_health=False)
                continue
            asked = False
            if response[0] == b"message":
                message: bytes = response[2]
                return message


@asynccontextmanager
async def subscribed(redis: ArqRedis, channel: str) -> AsyncIterator[Subscription]:
    """Subscribe to ``channel`` for the time of a block, on a connection of its own.

    Raises what redis-py raises when the store can't be reached or forbids it.
    """
    pool = redis.connection_pool
    connection = await pool.get_connection()
    try:
        await connection.send_command("SUBSCRIBE", channel)
        await connection.read_response()
        yield Subscription(connection)
    finally:
        # Nobody else may get a connection that is subscribed.
        await connection.disconnect(nowait=True)
        await pool.release(connection)
