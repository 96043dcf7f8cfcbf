"""The checker finds what is broken: an invariant that nothing can break shows nothing."""

import json
import struct

import pytest
from fakeredis import FakeRedis
from openai.types import BatchUsage

from faults.checker import check_footprints, check_history, check_stored, check_usage, check_vectors
from faults.history import Exchange, History
from faults.processes import Footprint
from faults.scenario import Scenario
from faults.scenarios import soak
from faults.witness import Attempts
from shared.protocol.events import Delta, Entry, Finished
from shared.protocol.usage import UsageCounts
from shared.redis import keys

CALM = Scenario(name="calm", what="")
EXPECTED = {"hello": "one two three"}


def whole(**changes: object) -> Exchange:
    fields: dict[str, object] = {
        "client": 0,
        "number": 0,
        "prompt": "hello",
        "tokens": 3,
        "streamed": True,
        "sent": 0.0,
        "status": 200,
        "ended": 4.0,
        "outcome": "completed",
        "pieces": ["one", " two", " three"],
        "arrivals": [1.0, 2.0, 3.5],
        "endings": 1,
    }
    return Exchange(**{**fields, **changes})  # type: ignore[arg-type]


def wrong(*exchanges: Exchange, scenario: Scenario = CALM) -> list[str]:
    history = History()
    history.exchanges += exchanges
    return check_history(history, EXPECTED, scenario)


def test_a_whole_answer_is_right() -> None:
    assert wrong(whole()) == []


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"pieces": ["one", " three"]}, "text differs"),
        ({"pieces": ["one", " two", " two", " three"]}, "text differs"),
        ({"endings": 0}, "0 terminal events"),
        ({"endings": 2}, "2 terminal events"),
        ({"after_end": 1}, "after its terminal event"),
        ({"outcome": "open"}, "never ended"),
        ({"outcome": "cut"}, "ended early"),
        ({"outcome": "failed", "error": "engine_failed"}, "engine_failed"),
        ({"outcome": "refused", "status": 500, "error": "oh"}, "status 500"),
        ({"outcome": "refused", "status": 503}, "no retry-after"),
        ({"outcome": "aborted", "pieces": ["two"]}, "beginning of its text differs"),
    ],
)
def test_each_broken_promise_is_found(changes: dict[str, object], complaint: str) -> None:
    assert any(complaint in one for one in wrong(whole(**changes)))


def test_a_sampled_text_that_is_joined_from_two_attempts_is_found() -> None:
    sampled = {"prompt": "random", "sampled": True, "tokens": 2}
    assert wrong(whole(pieces=[" the", " stone"], **sampled)) == []
    assert any("attempts" in one for one in wrong(whole(pieces=[" the", " fish"], **sampled)))
    assert any("has 1 tokens" in one for one in wrong(whole(pieces=[" the"], **sampled)))


def test_a_refused_request_must_be_answered_in_the_end() -> None:
    refused = whole(outcome="refused", status=503, retry_after=1.0, pieces=[], arrivals=[], endings=0)
    assert wrong(refused, whole()) == []
    assert any("never got its answer" in one for one in wrong(refused))


def test_an_answer_may_come_only_once() -> None:
    assert any("had 2 answers" in one for one in wrong(whole(), whole()))


def test_only_the_errors_that_a_scenario_allows_are_excused() -> None:
    allowing = Scenario(name="poison", what="", visible=("engine_crash_loop",))
    failed = whole(outcome="failed", error="engine_crash_loop")
    assert wrong(failed, scenario=allowing) == []
    assert wrong(whole(outcome="failed", error="internal_error"), scenario=allowing)


def test_answers_that_are_not_stored_as_they_should_be_are_found() -> None:
    client, history = FakeRedis(), History()
    history.exchanges += [
        whole(stored_as="0/0", outcome="cut"),
        whole(stored_as="0/1"),
        whole(stored_as="0/2", status=0, outcome="cut"),
        whole(),
    ]
    for name, text in (("0/0", "one two three"), ("0/1", "one")):
        document = json.dumps({"choices": [{"message": {"content": text}}]})
        client.hset(
            keys.stored("", f"chatcmpl-{name}"),
            mapping={"metadata": json.dumps({"request": name}), "document": document},
        )
    assert check_stored(client, history, EXPECTED) == ["request 0/1 is stored with another text"]
    client.flushall()
    assert len(check_stored(client, history, EXPECTED)) == 2


def test_other_values_than_without_faults_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXPECTED, "embed it", "[[0.5, -0.25], [1.0, 2.0]]")
    for text, complaints in (
        ("[[0.500009, -0.25], [1.0, 2.0]]", []),
        ("[[0.50002, -0.25], [1.0, 2.0]]", ["request 0/0: has other values than without faults"]),
        ("[[0.5, -0.25]]", ["request 0/0: has other values than without faults"]),
    ):
        assert wrong(whole(prompt="embed it", model="embed", pieces=[text])) == complaints


def test_keys_with_vectors_are_found() -> None:
    client, vector = FakeRedis(), struct.pack("<3f", 0.5, -0.25, 1.0)
    client.rpush("sound", "hello", struct.pack("<3f", 0.5, 0.25, 1.0))
    client.rpush("list", "hello", b"before " + vector)
    client.hset("hash", mapping={"field": vector})
    client.xadd("stream", {"field": vector})
    client.set("string", vector)
    found = check_vectors(client, {"a": "hello", "b": "[[0.7]]", "c": "[[0.5, -0.25, 1.0]]"})
    assert sorted(found) == [f"key {name} holds a vector" for name in ("hash", "list", "stream", "string")]


def test_a_gap_is_the_longest_silence_that_touches_the_time() -> None:
    assert whole().longest_gap(2.5, 3.0) == 1.5
    assert whole().longest_gap(0.5, 0.9) == 1.0
    assert whole().longest_gap(10.0, 11.0) == 0.0


def test_growth_is_found_in_processes_that_lived_on() -> None:
    before = {1: Footprint(files=20, threads=4, megabytes=60)}
    assert check_footprints(before, {1: Footprint(files=30, threads=4, megabytes=70)}) == []
    assert check_footprints(before, {1: Footprint(files=200, threads=4, megabytes=70)})
    assert check_footprints(before, {1: Footprint(files=20, threads=4, megabytes=600)})


def test_attempts_that_speak_in_turns_are_found() -> None:
    attempts = Attempts()
    delta = Delta(0, (1,), "one")
    for attempt in (1, 1, 2):
        attempts.note(Entry("job", attempt, delta))
    assert attempts.complaints == []
    attempts.note(Entry("job", 1, delta))
    assert "attempt 1 published after attempt 2" in attempts.complaints[0]


def test_events_after_the_end_are_found() -> None:
    attempts = Attempts()
    attempts.note(Entry("job", 1, Finished(1, "stop")))
    attempts.note(Entry("job", 1, Delta(0, (1,), "one")))
    assert "after its end" in attempts.complaints[0]


def test_a_seed_makes_the_same_soak() -> None:
    assert soak(7, 60) == soak(7, 60)
    assert soak(7, 60).faults != soak(8, 60).faults


@pytest.mark.parametrize(
    ("requests", "completion_tokens", "complaints"),
    [(3, 6, 0), (4, 9, 0), (2, 6, 1), (3, 5, 1), (5, 6, 1), (4, 10, 1)],
    ids=["least", "most", "a request too few", "a token too few", "a request too many", "a token too many"],
)
def test_usage_is_what_clients_were_told(requests: int, completion_tokens: int, complaints: int) -> None:
    history = History()
    history.exchanges += [whole(prompt_tokens=5, completion_tokens=3)] * 2
    history.exchanges.append(whole(outcome="aborted"))
    before = {"other": UsageCounts(requests=1), "batch": UsageCounts()}
    counted = UsageCounts(requests=requests, prompt_tokens=10, completion_tokens=completion_tokens)
    found = [*check_usage({"other": counted, "batch": UsageCounts()}, before, history, None, CALM)]
    assert len(found) == complaints


def test_usage_of_a_batch_may_be_more_only_where_replicas_die() -> None:
    reported = BatchUsage.construct(input_tokens=5, output_tokens=3)
    counted = {"other": UsageCounts(), "batch": UsageCounts(requests=2, prompt_tokens=10, completion_tokens=6)}
    before = {"other": UsageCounts(), "batch": UsageCounts()}
    for scenario, complaints in (
        (Scenario(name="batch", what="", batch=1), 3),
        (Scenario(name="batch", what="", batch=1, broken_connections=True), 0),
    ):
        assert len([*check_usage(counted, before, History(), reported, scenario)]) == complaints
