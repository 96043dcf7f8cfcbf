"""Refusals of requests while the store is unreachable, or executes no commands."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from redis.exceptions import OutOfMemoryError, RedisError, ResponseError

from shared.protocol.errors import ProblemKind, RequestRefused, refuse


def store_unavailable(error: Exception | None = None) -> RequestRefused:
    """Return the :class:`RequestRefused` for a command that failed with ``error``; None if the store is unreachable."""
    match error:
        case OutOfMemoryError():
            state = "is out of memory"
        case ResponseError():
            state = "refused a command"
        case _:
            state = "can't be reached"
    message = f"The store behind this service {state}. Please try again."
    return refuse(ProblemKind.STORE_UNAVAILABLE, message, retry_after=1.0)


@asynccontextmanager
async def store_errors() -> AsyncIterator[None]:
    """Raise :class:`RequestRefused` when the store fails."""
    try:
        yield
    except (RedisError, OSError) as error:
        raise store_unavailable(error) from error
