"""Refusals of requests while the store is unreachable."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from redis.exceptions import RedisError

from shared.protocol.errors import store_unavailable


@asynccontextmanager
async def store_errors() -> AsyncIterator[None]:
    """Raise :class:`RequestRefused` when the store is unreachable."""
    try:
        yield
    except (RedisError, OSError) as error:
        raise store_unavailable() from error
