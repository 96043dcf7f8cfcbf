"""Bodies that are hardly JSON are refused."""

import pytest

from api.dialects.base.body import MAX_DEPTH, MAX_VALUES
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
