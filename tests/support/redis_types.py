"""Types for redis-py's commands, whose stubs do not distinguish synchronous from asynchronous clients."""

from collections.abc import Awaitable
from typing import Any, cast

import redis
import redis.asyncio


def at_once(answer: Awaitable[Any] | Any) -> Any:
    """The answer of a blocking client."""
    return answer


def awaitable(answer: Awaitable[Any] | Any) -> Awaitable[Any]:
    """The answer to come of an asynchronous client."""
    return cast("Awaitable[Any]", answer)


def command(client: "redis.Redis | redis.asyncio.Redis", *words: str) -> Any:
    """Send a command as it is; return the answer, or what to await it with."""
    return client.execute_command(*words)
