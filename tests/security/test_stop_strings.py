"""Stop strings are bounded in number and length, and looked for in linear time."""

import json
import sys
from typing import Any

import pytest

from api.dialects.base.sampling import MAX_STOP_LENGTH
from shared.protocol.errors import RequestRefused
from tests.support.dialects import DIALECTS, Tried
from worker.engine.stops import StopSearch
from worker.engine.text import TextStream, Vocabulary

LONGEST = "x" * MAX_STOP_LENGTH
STOPPED = [tried for tried in DIALECTS.values() if tried.route.body and "stop" in tried.route.body.model.model_fields]


@pytest.mark.parametrize("tried", STOPPED, ids=lambda tried: tried.known.name)
@pytest.mark.parametrize(
    ("stop", "param", "reason"),
    [
        ("x" * 3_900_000, "stop", "a string with length 3900000 instead"),
        (["x", LONGEST + "x"], "stop[1]", f"a string with length {MAX_STOP_LENGTH + 1} instead"),
        (["x"] * 5, "stop", "an array with length 5 instead"),
        (["x"] * 100_000, "stop", "an array with length 100000 instead"),
    ],
    ids=["long", "long in an array", "many", "very many"],
)
def test_more_is_refused(tried: Tried, stop: object, param: str, reason: str) -> None:
    dialect = tried.make()
    with pytest.raises(RequestRefused) as refused:
        dialect.parse(json.dumps(tried.body("hello", stop=stop)).encode())
    problem = refused.value.problem
    assert (problem.param, reason in problem.message) == (param, True), problem.message
    reply = dialect.error(problem)
    assert reply.status == (422 if tried.known.name == "azure" else 400)
    assert problem.message in reply.body.decode()


@pytest.mark.parametrize("tried", STOPPED, ids=lambda tried: tried.known.name)
def test_the_longest_are_taken(tried: Tried) -> None:
    body = json.dumps(tried.body("hello", stop=[LONGEST] * 4)).encode()
    assert tried.make().parse(body).sampling.stop == (LONGEST,) * 4


@pytest.mark.parametrize("text", ["a" * 5000, ("a" * 1022 + "b") * 5, "ab" * 2500, ("a" * 511 + "b") * 10])
def test_texts_that_repeat_a_stop_strings_beginning_cost_a_few_calls_a_token(text: str) -> None:
    stops = ("a" * (MAX_STOP_LENGTH - 1) + "X", "ab" * (MAX_STOP_LENGTH // 2 - 1) + "X", "aX", "a" * 512 + "X")
    stream = TextStream(Vocabulary([b"a", b"b"]), stops=StopSearch(stops))
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event.endswith("call")

    tokens = ["ab".index(character) for character in text]
    sys.setprofile(count)
    try:
        shown = "".join(map(stream.push, tokens))
    finally:
        sys.setprofile(None)
    assert shown + stream.finish() == text
    assert calls / len(tokens) / len(stops) < 25
