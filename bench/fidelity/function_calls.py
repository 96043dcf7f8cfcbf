"""Asks servers of OpenAI's API the Python cases of the Berkeley function calling leaderboard, and compares the calls.

``python -m bench.fidelity.function_calls FOLDER URL...``, with the folder ``bfcl_eval/data`` of the wheel of bfcl-eval.
"""

import argparse
import asyncio
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from bench.report import table

_CATEGORIES = ("simple_python", "multiple", "parallel", "irrelevance")
_MAX_TOKENS = 160
_TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}
"""The leaderboard's names of types that JSON Schema does not have."""

Call = tuple[str, Any]


class Case(NamedTuple):
    """A question with ``tools``, and the calls that are ``right``: for each argument the values that are."""

    question: list[dict[str, str]]
    tools: list[dict[str, Any]]
    right: list[tuple[str, Mapping[str, Sequence[Any]]]]


def cases(folder: Path, category: str, count: int) -> Iterator[Case]:
    """Yield about ``count`` cases of a category, evenly spread. Those of irrelevant tools have no right call."""
    file = f"BFCL_v4_{category}.json"
    lines = [json.loads(line) for line in (folder / file).read_text().splitlines()]
    known = folder / "possible_answer" / file
    right = [json.loads(line)["ground_truth"] for line in known.read_text().splitlines()] if known.exists() else []
    for at in range(0, len(lines), max(len(lines) // count, 1)):
        functions = [_standard(function) | {"name": _name(function["name"])} for function in lines[at]["function"]]
        calls = [(_name(name), values) for call in (right[at] if right else []) for name, values in call.items()]
        yield Case(lines[at]["question"][0], [{"type": "function", "function": one} for one in functions], calls)


def is_right(calls: Sequence[Call], case: Case) -> bool:
    """Whether the calls are the right ones, in any order."""
    left = list(case.right)
    for name, arguments in calls:
        found = next((one for one in left if one[0] == name and _allowed(arguments, one[1])), None)
        if found is None:
            return False
        left.remove(found)
    return not left


def _allowed(arguments: Any, values: Mapping[str, Sequence[Any]]) -> bool:
    """Whether each argument has one of its values; those that may have the value "" may be missing."""
    return (
        isinstance(arguments, dict)
        and arguments.keys() <= values.keys()
        and all(
            any(_same(arguments[name], one) for one in allowed) if name in arguments else "" in allowed
            for name, allowed in values.items()
        )
    )


def _same(value: Any, expected: Any) -> bool:
    match value, expected:
        case str(), str():
            return _plain(value) == _plain(expected)
        case list(), list():
            return len(value) == len(expected) and all(map(_same, value, expected))
        case dict(), dict():
            return _allowed(value, expected)
    return bool(value == expected) and isinstance(value, bool) == isinstance(expected, bool)


def _plain(text: str) -> str:
    return re.sub(r"[ ,./\-_*^]", "", text).casefold().replace("'", '"')


def _name(name: str) -> str:
    return name.replace(".", "_")


def _standard(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_standard(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    changed = {key: _standard(value) for key, value in schema.items()}
    kind = changed.get("type")
    return changed | {"type": _TYPES.get(kind, kind)} if isinstance(kind, str) else changed


async def _row(url: str, category: str, choice: str, asked: Sequence[Case]) -> dict[str, object]:
    async with httpx.AsyncClient(base_url=url.rstrip("/") + "/", timeout=600) as client:
        model = (await client.get("models")).json()["data"][0]["id"]

        async def calls_of(case: Case) -> list[Call]:
            fields = {"model": model, "messages": case.question, "tools": case.tools, "tool_choice": choice}
            limits = {"temperature": 0, "max_tokens": _MAX_TOKENS, "parallel_tool_calls": category == "parallel"}
            reply = (await client.post("chat/completions", json=fields | limits)).raise_for_status()
            functions = [call["function"] for call in reply.json()["choices"][0]["message"].get("tool_calls") or ()]
            return [(function["name"], _decoded(function["arguments"])) for function in functions]

        found = [await calls_of(case) for case in asked]
    right = [is_right(calls, case) for calls, case in zip(found, asked, strict=True)]
    names = [
        {name for name, _ in calls} == {name for name, _ in case.right}
        for calls, case in zip(found, asked, strict=True)
    ]
    return {
        "server": url,
        "category": category,
        "cases": len(asked),
        "functions right": sum(names),
        "right": sum(right),
    }


def _decoded(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return None


async def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("urls", nargs="+")
    parser.add_argument("--count", type=int, default=50, help="cases of each category")
    parser.add_argument("--choice", default="auto", choices=("auto", "required"))
    options = parser.parse_args()
    rows = [
        await _row(url, category, options.choice, list(cases(options.folder, category, options.count)))
        for category in _CATEGORIES
        for url in options.urls
    ]
    print(table(f"function calls, tool_choice {options.choice}", rows))


if __name__ == "__main__":
    asyncio.run(_main())
