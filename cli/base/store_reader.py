"""Reads the store for commands, and says what is wrong when it can't be read."""

import asyncio
import getpass
import socket
from collections.abc import Awaitable, Callable
from typing import TypeVar

import click
from arq.connections import ArqRedis
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError

from shared.redis.client import connect, raw_connection

_T = TypeVar("_T")


def read_store(redis_url: str, read: Callable[[ArqRedis], Awaitable[_T]]) -> _T:
    """Return what ``read`` reads from the store. Raises :class:`click.ClickException` if the store can't be read."""
    try:
        return asyncio.run(_connected(redis_url, read))
    except ValueError as error:
        raise click.ClickException(f"--redis-url is malformed: {error}") from None
    except (NoPermissionError, AuthenticationError) as error:
        raise click.ClickException(
            f"The store refuses this: {_text(error)}. Does the user in --redis-url (VINOQUEUE_REDIS_URL) have the "
            "right to it?"
        ) from None
    except (RedisError, OSError) as error:
        raise click.ClickException(
            f"The store can't be reached: {_text(error)}. Is it running, and is --redis-url (VINOQUEUE_REDIS_URL) "
            "right?"
        ) from None


def check_url(redis_url: str) -> None:
    """Raise :class:`click.ClickException` for a malformed URL of the store."""
    try:
        raw_connection(redis_url)
    except ValueError as error:
        raise click.ClickException(f"--redis-url is malformed: {error}") from None


def actor() -> str:
    """Return who runs this command, for the audit log."""
    return f"cli {getpass.getuser()}@{socket.gethostname()}"


async def _connected(redis_url: str, read: Callable[[ArqRedis], Awaitable[_T]]) -> _T:
    redis = connect(redis_url)
    try:
        return await read(redis)
    finally:
        await redis.aclose(close_connection_pool=True)


def _text(error: Exception) -> str:
    return str(error).rstrip(".")
