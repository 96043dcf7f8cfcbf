"""A fuzzer over real HTTP: no body, however odd, gives anything but an answer or a refusal, in any interface."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.compatibility.interfaces import INTERFACES
from tests.compatibility.rows import Interface
from tests.support.fleet import Fleet
from tests.support.fuzzing import cases

_WORDS = st.sampled_from(["user", "text", "type", "function", "object", "json_schema", "auto", "sim", "[[say one]]"])
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 40) | st.floats() | st.just(2**70) | _WORDS | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS | st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
_EXTRAS = st.sampled_from([{}, {"extra-parameters": "ignore"}, {"extra-parameters": "pass-through"}])


@st.composite
def bodies(draw: st.DrawFn, interface: Interface) -> dict[str, Any]:
    """What some rows have that are served, with other values in some places."""
    body: dict[str, Any] = {**interface.plain, "model": "sim", "max_tokens": 3}
    served = [row for row in interface.requests if row.how]
    for row in draw(st.lists(st.sampled_from(served), max_size=3)):
        body |= {name: value for name, value in row.body.items() if name != "model"}
    for _ in range(draw(st.integers(0, 2))):
        body = draw(_altered(body))
    return body


@st.composite
def _altered(draw: st.DrawFn, value: Any) -> Any:
    """``value`` with something else in one place of it."""
    places = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    if not places or draw(st.integers(0, 3)) == 0:
        return draw(_JSON)
    place = draw(st.sampled_from(places))
    inner = draw(_altered(value[place]))
    if isinstance(value, dict):
        return {**value, place: inner}
    return [*value[:place], inner, *value[place + 1 :]]


_WITH_BODIES = [interface for interface in INTERFACES if interface.route.startswith("POST ")]
_LAST = ("message_stop", "response.completed", "response.incomplete")
"""Types of the last event of a stream, in the interfaces whose events have types."""


@pytest.mark.parametrize("interface", _WITH_BODIES, ids=lambda interface: interface.route)
@settings(max_examples=cases(20), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), extras=_EXTRAS)
def test_any_body_is_answered_or_refused(
    session_fleet: Fleet, interface: Interface, data: st.DataObject, extras: dict[str, str]
) -> None:
    method, _, path = interface.route.partition(" ")
    query = "&".join(f"{name}={value}" for name, value in interface.query.items())
    raw = json.dumps(data.draw(bodies(interface)))
    headers = {"content-type": "application/json", **extras}
    status, answered, answer = session_fleet.request(method, f"{path}?{query}", raw, headers)
    assert status == 200 or 400 <= status < 500, answer
    if status == 200 and answered["content-type"].startswith("text/event-stream"):
        *parts, last = [line.removeprefix(b"data: ") for line in answer.split(b"\n") if line.startswith(b"data: ")]
        assert last == b"[DONE]" or json.loads(last)["type"] in _LAST
        assert not any(json.loads(part).get("error") for part in parts)
    else:
        assert json.loads(answer)
