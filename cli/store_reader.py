"""Reads the store for commands, and says what is wrong when it can't be read."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import click
from arq.connections import ArqRedis
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError

from shared.redis.client import connect

_T = TypeVar("_T")


def read_store(redis_url: str, read: Callable[[ArqRedis], Awaitable[_T]]) -> _T:
    """Return what ``read`` reads from the store. Raises :class:`click.ClickException` if the store can't be read."""
    try:
        return asyncio.run(_connected(redis_url, read))
    except ValueError as error:
        raise click.ClickException(f"--redis-url is malformed: {error}") from None
    except (RedisError, OSError) as error:
        raise store_failure(error) from None


def store_failure(error: Exception) -> click.ClickException:
    """Return the exception that says what is wrong with the store or with its user."""
    reason = str(error).rstrip(".")
    if isinstance(error, (NoPermissionError, AuthenticationError)):
        return click.ClickException(
            f"Redis refuses this: {reason}. Does the user in --redis-url (VINOQUEUE_REDIS_URL) have the right to it?"
        )
    return click.ClickException(
        f"Redis can't be reached: {reason}. Is it running, and is --redis-url (VINOQUEUE_REDIS_URL) right?"
    )


async def _connected(redis_url: str, read: Callable[[ArqRedis], Awaitable[_T]]) -> _T:
    redis = connect(redis_url, max_connections=2)
    try:
        return await read(redis)
    finally:
        await redis.aclose(close_connection_pool=True)
