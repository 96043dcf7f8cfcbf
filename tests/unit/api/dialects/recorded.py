"""Cases in files of JSON lines, a file for each dialect: test_cases.py and test_encoders.py.

The first line of a file has a ``plain`` body, and objects that cases share. ``{"*": [3, "a"]}`` is ``"aaa"``,
``{"*": [3, [1]]}`` is ``[1, 1, 1]``, and ``{"$": "tool", "a": 1}`` is the shared object called ``tool`` with the field
``a``.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from api.dialects.anthropic import Anthropic
from api.dialects.azure import Azure
from api.dialects.base.interface import Dialect
from api.dialects.openai import OpenAI, OpenAICompletions
from api.dialects.ovms import ModelServer, ModelServerCompletions
from api.dialects.ovms.responses import ModelServerResponses
from api.dialects.responses import Responses

Case = dict[str, Any]
VERSIONS = {"api-version": "2024-05-01-preview"}


class Counting(Anthropic):
    """Reads the bodies of requests that count tokens."""

    parse = Anthropic.parse_count


DIALECTS: Mapping[str, Callable[[Case], Dialect]] = {
    "anthropic": lambda case: Anthropic(case.get("headers", {"anthropic-version": "2023-06-01"}), "req_1"),
    "anthropic_count": lambda case: Counting(case.get("headers", {})),
    "azure": lambda case: Azure(
        case.get("query", VERSIONS), case.get("headers", {}), lambda: tuple(case.get("serving", ("m",)))
    ),
    "chat": lambda case: OpenAI(),
    "completions": lambda case: OpenAICompletions(),
    "ovms_chat": lambda case: ModelServer(),
    "ovms_completions": lambda case: ModelServerCompletions(),
    "ovms_responses": lambda case: ModelServerResponses(),
    "responses": lambda case: Responses(),
}


def expand(shared: Mapping[str, Any], value: Case) -> Any:
    """Return what an object stands for: itself, or a repeated or a shared value."""
    if value.keys() == {"*"}:
        count, unit = value["*"]
        return unit * count
    return shared[value["$"]] | {name: inner for name, inner in value.items() if name != "$"} if "$" in value else value


def cases(folder: Path, name: str) -> Iterator[Any]:
    """Each case of a dialect, with the dialect's name and the first line of its file."""
    first, *lines = (folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    plain = json.loads(first)
    hook = partial(expand, plain.get("shared", {}))
    plainest: list[Case] = [{"send": {}, "is": {}}] if "is" in plain else []
    for number, case in enumerate([*plainest, *(json.loads(line, object_hook=hook) for line in lines)], 1):
        about = case.get("case") or json.dumps(case["send"])[:50]
        yield pytest.param(name, plain, case, id=f"{name}:{number} {about}")
