"""Asks servers of OpenAI's API the Python cases of the Berkeley function calling leaderboard, and compares the calls.

``python -m bench.fidelity.function_calls FOLDER URL...``, with the folder ``bfcl_eval/data`` of the wheel of bfcl-eval.
"""

import argparse
import asyncio
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import jsonschema_rs

from bench.report import table

_CATEGORIES = {
    "auto": ("simple_python", "multiple", "parallel", "irrelevance"),
    "required": ("simple_python", "multiple", "parallel"),
}
"""Those asked with each ``tool_choice``: no call is right for irrelevant tools."""
_MAX_TOKENS = 160
_CONCURRENCY = 4
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


class Answer(NamedTuple):
    """What a server answered: ``calls``, with None for arguments that are not JSON. ``refused`` is an error's body."""

    calls: list[Call]
    text: str = ""
    ended: bool = True
    refused: str = ""


def is_valid(answer: Answer, case: Case) -> bool:
    """Whether every call is of an offered function and follows its schema; a refused request is not valid."""
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in case.tools}
    return not answer.refused and all(
        name in schemas and jsonschema_rs.is_valid(schemas[name], arguments) for name, arguments in answer.calls
    )


async def _answers(url: str, category: str, choice: str, asked: Sequence[Case]) -> list[Answer]:
    turns = asyncio.Semaphore(_CONCURRENCY)
    async with httpx.AsyncClient(base_url=url.rstrip("/") + "/", timeout=600) as client:
        model = (await client.get("models")).json()["data"][0]["id"]

        async def answer(case: Case) -> Answer:
            fields = {"model": model, "messages": case.question, "tools": case.tools, "tool_choice": choice}
            limits = {"temperature": 0, "max_tokens": _MAX_TOKENS, "parallel_tool_calls": category == "parallel"}
            async with turns:
                reply = await client.post("chat/completions", json=fields | limits)
            if reply.is_error:
                return Answer([], refused=reply.text)
            chosen = reply.json()["choices"][0]
            message, ended = chosen["message"], chosen["finish_reason"] != "length"
            functions = [call["function"] for call in message.get("tool_calls") or ()]
            calls = [(function["name"], _decoded(function["arguments"])) for function in functions]
            return Answer(calls, message.get("content") or "", ended)

        return await asyncio.gather(*map(answer, asked))


def _row(url: str, category: str, asked: Sequence[Case], answers: Sequence[Answer]) -> dict[str, object]:
    pairs = list(zip(answers, asked, strict=True))
    return {
        "server": url,
        "category": category,
        "cases": len(asked),
        "functions right": sum(
            {call[0] for call in one.calls} == {call[0] for call in case.right} for one, case in pairs
        ),
        "right": sum(is_right(one.calls, case) for one, case in pairs),
        "with calls": sum(bool(one.calls) for one in answers),
        "invalid": sum(not is_valid(one, case) for one, case in pairs),
        "cut off": sum(not one.ended for one in answers),
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
    parser.add_argument("--choice", default="auto", choices=tuple(_CATEGORIES))
    parser.add_argument("--answers", type=argparse.FileType("w"), default=os.devnull, help="file for what was answered")
    options = parser.parse_args()
    rows = []
    for category in _CATEGORIES[options.choice]:
        asked = list(cases(options.folder, category, options.count))
        for url in options.urls:
            answers = await _answers(url, category, options.choice, asked)
            rows.append(_row(url, category, asked, answers))
            print(json.dumps({**rows[-1], "answers": answers}), file=options.answers, flush=True)
    print(table(f"function calls, tool_choice {options.choice}", rows))


if __name__ == "__main__":
    asyncio.run(_main())
