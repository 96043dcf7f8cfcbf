"""Runs scripts twice with the same arguments, as a command is repeated whose reply was lost."""

import ast
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from redis.commands.core import AsyncScript

from shared.redis.raw_connection import Argument
from tests.support.redis_types import awaitable

ROOT = Path(__file__).parents[2]
_FOLDERS = ("api", "cli", "shared", "worker")

_READERS = {
    b"string": lambda client, key: client.get(key),
    b"hash": lambda client, key: client.hgetall(key),
    b"list": lambda client, key: client.lrange(key, 0, -1),
    b"set": lambda client, key: client.smembers(key),
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


class Repeats:
    """Has run the scripts ``ran`` twice each. ``differences`` are those whose second run was seen."""

    def __init__(self) -> None:
        self.bodies = scripts_of_the_source_tree()
        self.ran: set[str] = set()
        self.differences: dict[str, list[str]] = {}

    async def call(self, script: AsyncScript, keys: Sequence[str | bytes], arguments: Sequence[Argument]) -> Any:
        """Run ``script`` twice; return the first reply."""
        text = str(script.script)
        (name,) = (name for name, body in self.bodies.items() if text.endswith(body))
        self.ran.add(name)
        flags, body = _split(text)
        now = int(time.time())
        text = f"{flags}{_FROZEN % (now, now)}{body}"
        command = ("EVAL", text, len(keys), *keys, *arguments)
        client: Any = script.registered_client
        first, store = await client.execute_command(*command), await dump(client)
        second, again = await client.execute_command(*command), await dump(client)
        found = self.differences.setdefault(name, [])
        if second != first:
            found.append(f"reply {first!r}, then {second!r}")
        found += [f"{key!r}: {store.get(key)}, then {again.get(key)}" for key in sorted({*store, *again})
                  if not _same(store.get(key), again.get(key))]  # fmt: skip
        return first


_Value = tuple[Any, float, float]


async def dump(client: Any) -> dict[bytes, _Value]:
    """Return each key's value, the ms until it expires (-1 without a limit), and when that was read (ms)."""
    found: dict[bytes, _Value] = {}
    for key in await awaitable(client.keys("*")):
        value = await _READERS[await client.type(key)](client, key)
        found[key] = (value, await client.pttl(key), time.monotonic() * 1000)
    return found


def _same(first: _Value | None, second: _Value | None) -> bool:
    """Return whether a key has the same value and expires at the same time, or as long after the second run."""
    if first is None or second is None or first[0] != second[0] or (first[1] < 0) != (second[1] < 0):
        return False
    return first[1] + first[2] - 100 <= second[1] + second[2] <= first[1] + second[2] + 100


@contextmanager
def repeated() -> Iterator[Repeats]:
    """Run each script that is called within the block twice."""
    repeats = Repeats()

    async def call(script: AsyncScript, keys: Sequence[str | bytes], arguments: Sequence[Argument] = ()) -> Any:
        return await repeats.call(script, keys, arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AsyncScript, "__call__", call)
        yield repeats
