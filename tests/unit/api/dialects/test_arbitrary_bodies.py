"""A fuzzer for all dialects: every body is a request or a clean refusal."""

import copy
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.dialects.base.interface import Dialect
from shared.protocol.errors import Problem, RequestRefused
from shared.protocol.request import ChatRequest, decode_request, encode_request
from tests.support.dialects import DIALECTS, Tried
from tests.support.fuzzing import cases as examples
from tests.unit.api.dialects.recorded import cases

CASES = Path(__file__).parent / "cases"

_WORDS = st.sampled_from(
    [
        *("role", "content", "type", "text", "user", "tool", "assistant", "image_url", "name", "json_schema", "schema"),
        *("function", "tool_calls", "arguments", "mode", "allowed_tools", "url", "input_audio", "file", "refusal"),
        *("custom", "grammar", "system", "auto", "none", "required", "json_object"),
    ]
)
_NUMBERS = st.integers(-2, 3) | st.integers() | st.floats()
_JSON = st.recursive(
    st.none() | st.booleans() | _NUMBERS | _WORDS | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS | st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)
_MESSAGES = st.lists(
    st.dictionaries(st.sampled_from(["role", "content", "name", "tool_call_id"]), _JSON, max_size=4)
    | st.just({"role": "user", "content": "Hello"}),
    max_size=3,
)
_ITEMS = st.lists(
    st.dictionaries(
        st.sampled_from(
            ["type", "role", "content", "call_id", "name", "arguments", "output", "summary", "id", "tools"]
        ),
        _JSON | st.sampled_from(["function_call", "function_call_output", "reasoning", "message", "additional_tools"]),
        max_size=5,
    )
    | st.just({"role": "user", "content": "Hello"}),
    max_size=4,
)
_TEXTS = {"messages": _MESSAGES | _JSON, "prompt": st.just("Once") | _JSON, "input": _ITEMS | _JSON}
_EXTRAS: list[dict[str, Any]] = [
    {},
    {"headers": {"extra-parameters": "pass-through"}},
    {"headers": {"extra-parameters": "drop"}, "serving": ("m", "n")},
]
"""What Azure's dialect reads beside a body."""


@pytest.mark.parametrize("tried", DIALECTS.values(), ids=lambda tried: tried.known.name)
@given(data=st.data())
def test_any_body_is_a_request_or_a_refusal(tried: Tried, data: st.DataObject) -> None:
    assert tried.route.body is not None
    names = st.sampled_from(sorted(tried.route.body.model.model_fields)) | st.text(max_size=5)
    fields = data.draw(st.dictionaries(names, _JSON, max_size=4))
    body = tried.body("") | {tried.known.text: data.draw(_TEXTS.get(tried.known.text, _TEXTS["prompt"]))} | fields
    for about in _EXTRAS if tried.known.name == "azure" else [{}]:
        _check(tried.make(**about), json.dumps(body).encode())


def _places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The paths of all values in ``value``."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    yield path
    for key, child in inner:
        yield from _places(child, (*path, key))


@given(st.sampled_from([*DIALECTS.values()]), st.data())
@settings(max_examples=examples(60))
def test_any_value_in_any_place_and_any_bytes_are_a_request_or_a_refusal(tried: Tried, data: st.DataObject) -> None:
    """The bodies are those of the cases in ``cases/*.jsonl``."""
    _, plain, case = data.draw(st.sampled_from([*cases(CASES, tried.known.name)])).values
    whole = inner = copy.deepcopy(plain["plain"] | case["send"])
    *path, last = data.draw(st.sampled_from([place for place in islice(_places(whole), 500) if place]))
    for step in path:
        inner = inner[step]
    inner[last] = data.draw(_JSON | _WORDS)
    raw = json.dumps(whole).encode()
    _check(tried.make(), raw)
    at = data.draw(st.integers(0, min(200, len(raw))))
    _check(tried.make(), raw[:at] + data.draw(st.binary(max_size=4)) + raw[at + 1 :])


def _check(dialect: Dialect, raw: bytes) -> None:
    request, problem = _outcome(dialect, raw)
    if problem is not None:
        reply = dialect.error(problem)
        assert 400 <= reply.status < 500
        reported = json.loads(reply.body)
        error = reported if "message" in reported else reported["error"]
        assert problem.message in (error if isinstance(error, str) else error["message"])
    if request is not None:
        assert decode_request(encode_request(request)) == request
        dialect.render(request, response_id="a", created=1, fingerprint="").opening(0)


def _outcome(dialect: Dialect, raw: bytes) -> tuple[ChatRequest | None, Problem | None]:
    try:
        return dialect.parse(raw), None
    except RequestRefused as refusal:
        return None, refusal.problem
