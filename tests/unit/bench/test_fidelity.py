"""The cases of ``bench fidelity``, and how it reads answers."""

import json

import jsonschema_rs
import pytest

from bench.fidelity.cases import tasks
from bench.fidelity.reading import call_of, fields_of, right


def test_cases_are_the_same_at_every_run_and_their_answers_are_valid() -> None:
    for task, again in zip(tasks(100), tasks(100), strict=True):
        assert task.cases == again.cases
        assert len(task.cases) == 100
        validator = jsonschema_rs.Draft202012Validator(json.dumps(task.schema))
        for _, expected in task.cases:
            arguments = {name: value for name, value in expected.items() if name != "tool"}
            answer = {"name": expected["tool"], "arguments": arguments} if task.tools else dict(expected)
            assert validator.is_valid(answer), answer


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"name": "Anna", "age": 30}', {"name": "Anna", "age": 30}),
        ('Sure:\n```json\n{"name": "Anna", "age": 30}\n```', {"name": "Anna", "age": 30}),
        ('{"name": "Anna", "age": 30, "note": "cut of', {"name": "Anna", "age": 30}),
        ("**Name**: Anna\nAge: 30", {"name": "Anna", "age": "30"}),
        ("{}", {}),
        ("I don't know.", {}),
    ],
)
def test_fields_are_read_leniently(text: str, found: dict[str, object]) -> None:
    fields = fields_of(text, ["name", "age"])
    assert {name: value for name, value in fields.items() if name != "note"} == found


@pytest.mark.parametrize(
    ("text", "topic"),
    [('{"topic": "music"}', "music"), ('{"topic": "Sports"}', "sport"), ("It is about food, not music.", "food")],
)
def test_a_label_may_stand_anywhere(text: str, topic: str) -> None:
    assert fields_of(text, ["topic"], ["sport", "food", "music"]) == {"topic": topic}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>', {"tool": "f", "a": 1}),
        ('[{"name": "f", "arguments": {"a": 1}}]', {"tool": "f", "a": 1}),
        ("Call f, then g.", {"tool": "f"}),
        ("Hello.", {}),
    ],
)
def test_a_call_is_read_leniently(text: str, found: dict[str, object]) -> None:
    assert call_of(text, ["f", "g"]) == found


def test_capital_letters_and_types_of_numbers_do_not_count() -> None:
    assert right({"name": "ANNA ", "age": "30", "city": "Rome"}, {"name": "Anna", "age": 30, "city": "Oslo"}) == 2
