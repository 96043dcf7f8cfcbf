"""Calls are compared as the Berkeley function calling leaderboard does."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench.fidelity.function_calls import Answer, Case, cases, is_right, is_valid

AREA = Case(
    question=[],
    tools=[],
    right=[("area", {"base": [10], "unit": ["cm, or so", ""], "sides": [[3, 4.0]], "how": [{"exact": [True]}]})],
)
RIGHT: dict[str, Any] = {"base": 10, "sides": [3, 4], "how": {"exact": True}}


@pytest.mark.parametrize("arguments", [RIGHT, RIGHT | {"unit": "CM or-so"}])
def test_optional_arguments_and_punctuation_do_not_matter(arguments: dict[str, Any]) -> None:
    assert is_right([("area", arguments)], AREA)


@pytest.mark.parametrize(
    "calls",
    [
        [],
        [("area", None)],
        [("volume", RIGHT)],
        [("area", RIGHT), ("area", RIGHT)],
        [("area", RIGHT | {"base": "10"})],
        [("area", RIGHT | {"how": {"exact": 1}})],
        [("area", RIGHT | {"sides": [4, 3]})],
        [("area", RIGHT | {"other": 1})],
        [("area", {"base": 10})],
    ],
)
def test_other_calls_are_wrong(calls: list[tuple[str, Any]]) -> None:
    assert not is_right(calls, AREA)


def test_cases_are_read_in_the_terms_of_json_schema(tmp_path: Path) -> None:
    function = {"name": "a.b", "parameters": {"type": "dict", "properties": {"x": {"type": "float"}}}}
    line = {"question": [[{"role": "user", "content": "Hi"}]], "function": [function]}
    (tmp_path / "BFCL_v4_multiple.json").write_text(json.dumps(line) + "\n")
    (tmp_path / "possible_answer").mkdir()
    (tmp_path / "possible_answer" / "BFCL_v4_multiple.json").write_text('{"ground_truth": [{"a.b": {"x": [1.5]}}]}\n')
    (case,) = cases(tmp_path, "multiple", 5)
    assert case.tools[0]["function"] == {
        "name": "a_b",
        "parameters": {"type": "object", "properties": {"x": {"type": "number"}}},
    }
    assert is_right([("a_b", {"x": 1.5})], case)


@pytest.mark.parametrize(
    ("answer", "valid"),
    [
        (Answer([]), True),
        (Answer([("f", {"x": 1})]), True),
        (Answer([("f", {"x": 1}), ("f", {"x": "1"})]), False),
        (Answer([("f", None)]), False),
        (Answer([("g", {"x": 1})]), False),
        (Answer([], refused="too long"), False),
    ],
)
def test_calls_that_do_not_follow_their_schema_are_invalid(answer: Answer, valid: bool) -> None:
    parameters = {"type": "object", "properties": {"x": {"type": "integer"}}}
    case = Case(
        question=[], tools=[{"type": "function", "function": {"name": "f", "parameters": parameters}}], right=[]
    )
    assert is_valid(answer, case) == valid
