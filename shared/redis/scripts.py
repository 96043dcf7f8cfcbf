"""Lua scripts that run in the store."""

import logging
from collections.abc import Mapping, Sequence
from hashlib import sha1
from importlib.resources import files
from typing import Any, Literal

from redis.asyncio import Redis
from redis.exceptions import NoScriptError, ResponseError

from shared.redis.raw_connection import Argument
from shared.redis.records import is_wrong_type

logger = logging.getLogger(__name__)

KeyType = Literal["string", "hash", "list", "zset", "set"]

_DELETE_FOREIGN = """#!lua flags=allow-oom
-- Deletes keys that hold an unexpected type of value.
-- KEYS: any
-- ARGV: the expected type of each key
-- Returns the keys that were deleted.
local deleted = {}
for at, key in ipairs(KEYS) do
  local found = redis.call('TYPE', key).ok
  if found ~= 'none' and found ~= ARGV[at] then
    redis.call('DEL', key)
    deleted[#deleted + 1] = key
  end
end
return deleted
"""


class Script:
    """A script that is called by its digest, and loaded when the store does not know it."""

    def __init__(self, redis: Redis, text: str, types: Sequence[KeyType] = ()) -> None:
        """``types`` are the expected types of the script's keys, in order. When the script fails because a key holds
        another type, which only foreign code can have written, that key is deleted and the script is retried."""
        self._redis: Any = redis
        self._types = types
        self.text = text
        self.digest = digest_of(text)

    async def __call__(self, keys: Sequence[str | bytes], arguments: Sequence[Argument] = ()) -> Any:
        """Return what the script returns. Raises what redis-py raises."""
        try:
            return await self._run(keys, arguments)
        except ResponseError as error:
            if not (self._types and is_wrong_type(error)):
                raise
            for key in await Script(self._redis, _DELETE_FOREIGN)(keys, self._types):
                logger.error("deleted key %s, which held an unexpected type of value", key.decode(errors="replace"))
            return await self._run(keys, arguments)

    async def _run(self, keys: Sequence[str | bytes], arguments: Sequence[Argument]) -> Any:
        command = ("EVALSHA", self.digest, len(keys), *keys, *arguments)
        try:
            return await self._redis.execute_command(*command)
        except NoScriptError:
            await self._redis.execute_command("SCRIPT LOAD", self.text)
            return await self._redis.execute_command(*command)


def text_with_prelude(package: str, name: str, constants: Mapping[str, str | int] | None = None) -> str:
    """Return the text of a script in ``package``: its flags, which must come first, ``constants``, ``prelude.lua``, and
    the body."""
    folder = files(package)
    flags, _, body = (folder / f"{name}.lua").read_text().partition("\n")
    head = "".join(f"local {constant} = {value!r}\n" for constant, value in (constants or {}).items())
    return f"{flags}\n{head}{(folder / 'prelude.lua').read_text()}{body}"


def digest_of(text: str) -> str:
    """Return the digest by which the store identifies a loaded script."""
    return sha1(text.encode(), usedforsecurity=False).hexdigest()
