"""Lua scripts that the store runs."""

from collections.abc import Sequence
from hashlib import sha1
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoScriptError

from shared.line import Argument


class Script:
    """A script that is sent to the store when that does not know it, and called by its digest from then on."""

    def __init__(self, redis: Redis, text: str) -> None:
        self._redis: Any = redis
        self.text = text
        self.digest = digest_of(text)

    async def __call__(self, keys: Sequence[str | bytes], arguments: Sequence[Argument] = ()) -> Any:
        """Return what the script returns. Raises what redis-py raises."""
        command = ("EVALSHA", self.digest, len(keys), *keys, *arguments)
        try:
            return await self._redis.execute_command(*command)
        except NoScriptError:
            await self._redis.execute_command("SCRIPT LOAD", self.text)
            return await self._redis.execute_command(*command)


def digest_of(text: str) -> str:
    """Return the digest by which the store calls a script that it knows."""
    return sha1(text.encode(), usedforsecurity=False).hexdigest()
