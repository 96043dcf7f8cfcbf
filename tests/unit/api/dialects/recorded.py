"""Cases in files of JSON lines, a file for each dialect: test_cases.py and test_encoders.py.

The first line of a file has a ``plain`` body, and objects that cases share. ``{"*": [3, "a"]}`` is ``"aaa"``,
``{"*": [3, [1]]}`` is ``[1, 1, 1]``, and ``{"$": "tool", "a": 1}`` is the shared object called ``tool`` with the field
``a``.
"""

import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from api.dialects.anthropic import CountTokens
from api.dialects.base.interface import Asked, Dialect
from tests.support.dialects import DIALECTS

Case = dict[str, Any]


COUNT = "anthropic_count"
NAMES = (*DIALECTS, COUNT)


def made(name: str, case: Case) -> Dialect:
    """Return the dialect of a case."""
    about = {key: case[key] for key in ("query", "headers", "serving") if key in case}
    if name == COUNT:
        return CountTokens(Asked(headers=about.get("headers", {})))
    return DIALECTS[name].make(**about)


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
