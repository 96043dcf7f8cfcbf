"""Reads the store for commands, and says what is wrong when it can't be read."""

import asyncio
import getpass
import os
import socket
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


def actor() -> str:
    """Return who runs this command, for the audit log."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # no LOGNAME, and the user has no name; a KeyError before Python 3.13
        user = f"uid {os.getuid()}"
    return f"cli {user}@{socket.gethostname()}"


async def _connected(redis_url: str, read: Callable[[ArqRedis], Awaitable[_T]]) -> _T:
    redis = connect(redis_url)
    try:
        return await read(redis)
    finally:
        await redis.aclose(close_connection_pool=True)


def _text(error: Exception) -> str:
    return str(error).rstrip(".")
