"""Bodies that are hardly JSON, and a fuzzer: whatever comes, the answer is a clean refusal."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.dialects.base.body import MAX_DEPTH, MAX_VALUES
from shared.protocol.errors import ProblemKind
from tests.unit.api.dialects.bodies import DIALECT, body, error_of, problem_of

PREFIX = "We could not parse the JSON body of your request: "


def _with(field: bytes) -> bytes:
    return body()[:-1] + b", " + field + b"}"


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "EOF while parsing"),
        (b"{", "line 1 column 1"),
        (b"hello", "expected value"),
        (b"[]", "must be a JSON object"),
        (b"null", "must be a JSON object"),
        (b'"text"', "must be a JSON object"),
        (b"\xff\xfe{}", "expected value"),
        (b"\xef\xbb\xbf{}", "expected value"),
        (body() + b"{}", "trailing characters"),
        (_with(b'"seed": 1, "seed": 2'), 'duplicate key "seed"'),
        (_with(b'"temperature": NaN'), "expected value"),
        (_with(b'"temperature": -Infinity'), "invalid number"),
        (_with(b'"temperature": 1e999'), "number is too large"),
        (_with(b'"seed": ' + b"1" * 10_000), "number out of range"),
        (_with(b'"temperature": ' + b"9" * 300 + b"e9"), "number is too large"),
        (_with(b'"user": "\xff"'), "invalid unicode"),
        (_with(b'"user": "\\ud800"'), "hex escape"),
        (_with(b'"\\uD800": 1'), "hex escape"),
        (_with(b'"user": "\x01"'), "control character"),
        (b"[" * 100_000, "recursion limit"),
        (b'{"a":' * 100_000, "recursion limit"),
        (b'{"messages":[' + b"{}," * MAX_VALUES + b"{}]}", "more than"),
        (b"{}," * MAX_VALUES, "more than"),
        (b'{"":"\\\\","a":[' + b"0," * MAX_VALUES, "more than"),
    ],
)
def test_odd_json_is_refused(raw: bytes, words: str) -> None:
    status, error = error_of(raw)
    message = error["message"] or ""
    assert (status, error["param"], error["code"]) == (400, None, None)
    assert message.startswith(PREFIX)
    assert words in message


def test_nesting_is_allowed_up_to_the_limit() -> None:
    def nested(levels: int) -> bytes:
        return b'{"deep":' * levels + b"1" + b"}" * levels

    allowed, refused = problem_of(nested(MAX_DEPTH)), problem_of(nested(MAX_DEPTH + 1))
    assert allowed is not None
    assert "Unrecognized request argument" in allowed.message
    assert refused is not None
    assert "nested deeper" in refused.message


def test_values_are_counted_outside_strings() -> None:
    def problem(values: int) -> str:
        # Two opening brackets and two commas come before the array's commas.
        raw = b'{"a":"' + b'\\"[{,' * MAX_VALUES + b'","b":"\\\\","c":[' + b"0," * (values - 4) + b"0]}"
        found = problem_of(raw)
        assert found is not None
        return found.message

    assert "Unrecognized request argument" in problem(MAX_VALUES)
    assert f"more than {MAX_VALUES} values" in problem(MAX_VALUES + 1)


@pytest.mark.parametrize("part", [b'"', b'\\"', b'"\\', b'":', b"\\", b'""', b'a,"'])
def test_counting_takes_no_more_than_a_pass(part: bytes) -> None:
    # A pattern that backtracks would take hours.
    assert "parse the JSON body" in str(error_of(b"{" * MAX_VALUES + part * 1_000_000))


def test_an_escaped_emoji_and_brackets_in_text_are_fine() -> None:
    text = "\N{GRINNING FACE}" + "[{" * 1000 + "\u0000"
    request = DIALECT.parse(body(messages=[{"role": "user", "content": text}]))
    assert request.messages[0].content == text


_NAMES = [
    "role", "content", "type", "text", "name", "function", "tool_calls", "id", "arguments", "schema", "json_schema",
    "mode", "allowed_tools", "url", "image_url", "input_audio", "data", "format", "file", "file_data", "refusal",
    "audio", "custom", "input", "grammar", "syntax", "definition",
]  # fmt: skip
_CHOICES = [
    "system", "developer", "user", "assistant", "tool", "function", "text", "auto", "none", "required", "json_object",
    "json_schema", "custom",
]  # fmt: skip
_WORDS = st.sampled_from(_NAMES)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_WORDS | st.text(max_size=8), inner, max_size=5),
    max_leaves=10,
)
_VALUES = _JSON | st.sampled_from(_CHOICES)


_RICH: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": [{"type": "text", "text": "a"}], "name": "n"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u", "detail": "low"}}]},
        {
            "role": "assistant",
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                {"id": "d", "type": "custom", "custom": {"name": "g", "input": ""}},
            ],
        },
        {"role": "tool", "content": "", "tool_call_id": "c"},
        {"role": "tool", "content": [{"type": "text", "text": ""}], "tool_call_id": "d"},
        {"role": "function", "content": None, "name": "f"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": ""}]},
    ],
    "tools": [
        {"type": "function", "function": {"name": "f", "parameters": {"a": [1]}, "strict": None}},
        {
            "type": "custom",
            "custom": {"name": "g", "format": {"type": "grammar", "grammar": {"definition": "", "syntax": "lark"}}},
        },
    ],
    "tool_choice": {
        "type": "allowed_tools",
        "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "f"}}]},
    },
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
    "stream": True,
    "stream_options": {"include_usage": True},
    "stop": ["a"],
    "logit_bias": {"1": 1},
    "metadata": {"a": "b"},
    "store": True,
    "modalities": ["text", "audio"],
    "audio": {"voice": {"id": "v"}, "format": "wav"},
    "prediction": {"type": "content", "content": [{"type": "text", "text": ""}]},
    "web_search_options": {"user_location": {"type": "approximate", "approximate": {"city": "c"}}},
}


def _places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The paths of all values in ``value``."""
    if isinstance(value, dict):
        inner = list(value.items())
    else:
        inner = list(enumerate(value)) if isinstance(value, list) else []
    return [path, *(place for key, child in inner for place in _places(child, (*path, key)))]


@given(st.sampled_from(_places(_RICH)[1:]), _VALUES)
def test_any_value_in_any_place_is_a_request_or_a_refusal(place: tuple[str | int, ...], value: object) -> None:
    spoilt = copy.deepcopy(_RICH)
    target: Any = spoilt
    for key in place[:-1]:
        target = target[key]
    target[place[-1]] = value
    problem = problem_of(json.dumps(spoilt).encode())
    assert problem is None or problem.kind in (ProblemKind.INVALID, ProblemKind.MODALITY)


@given(
    st.binary(max_size=200)
    | st.integers(0, 60).flatmap(lambda at: st.binary(max_size=4).map(lambda junk: _spoilt(at, junk)))
)
def test_any_bytes_are_a_request_or_a_refusal(raw: bytes) -> None:
    problem = problem_of(raw)
    assert problem is None or problem.kind in (ProblemKind.INVALID, ProblemKind.MODALITY)


def _spoilt(at: int, junk: bytes) -> bytes:
    whole = body(stop=["a"], seed=1)
    return whole[:at] + junk + whole[at + 1 :]
