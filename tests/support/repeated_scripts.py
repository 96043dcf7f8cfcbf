"""Runs scripts twice with the same arguments, as a command is repeated whose reply was lost, and without memory."""

import ast
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from redis.commands.core import AsyncScript
from redis.exceptions import OutOfMemoryError

from shared.redis.raw_connection import Argument
from tests.support.redis_types import awaitable

ROOT = Path(__file__).parents[2]
_FOLDERS = ("api", "cli", "shared", "worker")

_READERS = {
    b"string": lambda client, key: client.get(key),
    b"hash": lambda client, key: client.hgetall(key),
    b"list": lambda client, key: client.lrange(key, 0, -1),
    b"set": lambda client, key: client.smembers(key),
    b"stream": lambda client, key: client.xrange(key),
    b"zset": lambda client, key: client.zrange(key, 0, -1, withscores=True),
}

_FROZEN = """
local redis = setmetatable({
  call = function(name, ...) if name == 'TIME' then return {'%d', '0'} end return redis.call(name, ...) end,
  pcall = function(name, ...) if name == 'TIME' then return {'%d', '0'} end return redis.pcall(name, ...) end,
}, {__index = redis})
"""
"""Shadows the script's interface to the store with one whose clock stands still."""


@cache
def scripts_of_the_source_tree() -> dict[str, str]:
    """The body of every script, without flags, by its file, and the line for scripts in Python modules."""
    found = {}
    for folder in _FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.lua")):
            if path.name != "prelude.lua":
                found[str(path.relative_to(ROOT))] = path.read_text(encoding="utf-8")
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                    text, name = node.value.value, ast.unparse(node.targets[0])
                    if isinstance(text, str) and "redis.call(" in text:
                        found[f"{path.relative_to(ROOT)}:{name}"] = text
    return {name: _split(text)[1] for name, text in found.items()}


def _split(text: str) -> tuple[str, str]:
    """Return a script's line of flags, which may be empty, and the rest."""
    flags, _, body = text.partition("\n")
    return (flags, body) if flags.startswith("#!") else ("", text)


def name_of(text: str) -> str:
    """Return the file of a script with this text."""
    ends = {name: body.rpartition("-- prelude\n")[2] for name, body in scripts_of_the_source_tree().items()}
    (name,) = (name for name, end in ends.items() if text.endswith(end))
    return name


class Repeats:
    """Has run the scripts ``ran`` twice each. ``differences`` are those whose second run was seen."""

    def __init__(self) -> None:
        self.ran: set[str] = set()
        self.differences: dict[str, list[str]] = {}

    async def call(self, script: AsyncScript, keys: Sequence[str | bytes], arguments: Sequence[Argument]) -> Any:
        """Run ``script`` twice; return the first reply."""
        text = str(script.script)
        name = name_of(text)
        self.ran.add(name)
        flags, body = _split(text)
        now = int(time.time())
        text = f"{flags}{_FROZEN % (now, now)}{body}"
        command = ("EVAL", text, len(keys), *keys, *arguments)
        client: Any = script.registered_client
        await self._limit_memory(client, name, flags, command)
        began = time.monotonic()
        first, store = await client.execute_command(*command), await dump(client)
        second, again = await client.execute_command(*command), await dump(client)
        await client.config_set("maxmemory", 0)
        found = self.differences.setdefault(name, [])
        if second != first:
            found.append(f"reply {first!r}, then {second!r}")
        later = (time.monotonic() - began) * 1000
        found += [f"{key!r}: {store.get(key)}, then {again.get(key)}" for key in sorted({*store, *again})
                  if not _same(store.get(key), again.get(key), later)]  # fmt: skip
        return first

    async def _limit_memory(self, client: Any, name: str, flags: str, command: Sequence[Argument]) -> None:
        """Set the store's memory limit to a byte for a script that may run there. Any other is refused, and changes
        nothing."""
        if "allow-oom" in flags or "no-writes" in flags:
            await client.config_set("maxmemory", 1)
            return
        before = await dump(client)
        await client.config_set("maxmemory", 1)
        with pytest.raises(OutOfMemoryError):
            await client.execute_command(*command)
        await client.config_set("maxmemory", 0)
        changed = [key for key, value in (await dump(client)).items() if before.get(key) != value]
        assert not changed, f"{name} was refused at the memory limit, and has changed {changed}"


_Value = tuple[Any, int]


async def dump(client: Any) -> dict[bytes, _Value]:
    """Return each key's value, and the Unix time (ms) at which it expires, -1 if it does not."""
    found: dict[bytes, _Value] = {}
    for key in await awaitable(client.keys("*")):
        value = await _READERS[await client.type(key)](client, key)
        found[key] = (value, await client.pexpiretime(key))
    return found


def _same(first: _Value | None, second: _Value | None, later: float) -> bool:
    """Return whether a key has the same value and expires at the same time, or at most ``later`` ms after it."""
    if first is None or second is None or first[0] != second[0]:
        return False
    return first[1] == second[1] or 0 < first[1] < second[1] <= first[1] + later + 2


@contextmanager
def repeated() -> Iterator[Repeats]:
    """Run each script that is called within the block twice."""
    repeats = Repeats()

    async def call(script: AsyncScript, keys: Sequence[str | bytes], arguments: Sequence[Argument] = ()) -> Any:
        return await repeats.call(script, keys, arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AsyncScript, "__call__", call)
        yield repeats
