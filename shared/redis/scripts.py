"""Lua scripts that run in the store."""

from collections.abc import Mapping, Sequence
from hashlib import sha1
from importlib.resources import files
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoScriptError

from shared.redis.raw_connection import Argument


class Script:
    """A script that is called by its digest, and loaded when the store does not know it."""

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
