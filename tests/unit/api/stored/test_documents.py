"""Documents of stored responses that are made from journals, because their replica has gone."""

import json
import threading
from collections.abc import Sequence

import pytest
from arq.connections import ArqRedis

from api.fairness import SMALL
from api.responses.documents import document_of, find, finish_completions
from api.stored.record import Selection, StoredResponse
from api.stored.store import ResponseStore
from shared.protocol.errors import Problem, ProblemKind
from shared.protocol.events import CANCELLED, Delta, Event, Failed, Finished, Started, encode_event
from shared.redis import keys
from tests.support.redis_types import awaitable
from tests.support.stored import OWNER, completion, response, response_store
from tests.support.wall_clock import WallClock

STARTED = Started("w1", 3, "fp_test")
ANSWER: tuple[Event, ...] = (STARTED, Delta(0, (1, 2), "Hel"), Delta(2, (3,), "lo"), Finished(3, "stop"))
FAILURE = Failed(Problem(kind=ProblemKind.CACHE_EXHAUSTED, message="full"))
CALL = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
CALLS: tuple[Event, ...] = (
    Started("w1", 3, "fp_test", tools="hermes"),
    Delta(0, (1,), CALL),
    Delta(1, (2,), CALL),
    Delta(2, (3,), "more"),
)
"""A choice whose calls are complete before the model's text is."""


@pytest.fixture
def store(redis: ArqRedis) -> ResponseStore:
    return response_store(redis)


async def accepted(
    redis: ArqRedis, store: ResponseStore, record: StoredResponse, *journals: Sequence[Event], runs: bool = False
) -> None:
    """Store an accepted request, the journals of its jobs, and if it ``runs``, their payloads."""
    await store.create(OWNER, record)
    for job, events in zip(record.jobs, journals, strict=False):
        if events:
            await awaitable(redis.rpush(keys.journal(job), *map(encode_event, events)))
        if runs:
            await redis.set(keys.payload(job), "?")


async def test_a_completion_gets_the_document_that_its_replica_would_have_stored(
    redis: ArqRedis, store: ResponseStore
) -> None:
    record = completion(1, n=2, topic="sea")
    await accepted(redis, store, record, ANSWER, ANSWER)
    found = await find(store, OWNER, record.id)
    assert found is not None
    assert found.metadata == {"topic": "sea"}
    body = json.loads(found.document)
    assert (body["id"], body["created"], body["system_fingerprint"]) == (record.id, 7, "fp_test")
    assert [choice["message"]["content"] for choice in body["choices"]] == ["Hello", "Hello"]
    assert (body["choices"][0]["finish_reason"], body["usage"]["total_tokens"]) == ("stop", 9)
    again = await find(store, OWNER, record.id)
    assert again is not None
    assert again.document == found.document
    assert not await redis.exists(*map(keys.journal, record.jobs), *map(keys.journal_needed, record.jobs))
    assert await find(store, "another", record.id) is None


@pytest.mark.parametrize("record", [completion(1), response(1)], ids=["completion", "response"])
async def test_a_large_document_is_made_outside_of_the_event_loop(
    redis: ArqRedis, store: ResponseStore, record: StoredResponse, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []

    async def make(record: StoredResponse, journals: Sequence[Sequence[Event]]) -> bytes:
        threads.append(threading.get_ident())
        return await document_of(record, journals)

    monkeypatch.setattr("api.responses.documents.document_of", make)
    long = [Delta(at, (1,), "x" * 100) for at in range(SMALL // 100)]
    await accepted(redis, store, record, [STARTED, *long, Finished(len(long), "stop")])
    found = await find(store, OWNER, record.id)
    assert found is not None
    assert b"x" * 100 * len(long) in found.document
    assert threads
    assert threading.get_ident() not in threads


async def test_a_response_gets_its_document_in_the_background_or_not(redis: ArqRedis, store: ResponseStore) -> None:
    for record in (response(1), response(2, background=False)):
        await accepted(redis, store, record, ANSWER)
        found = await find(store, OWNER, record.id)
        assert found is not None
        body = json.loads(found.document)
        assert (body["status"], body["output"][0]["content"][0]["text"]) == ("completed", "Hello")
        assert body["usage"]["output_tokens"] == 3


async def test_completions_are_listed_although_their_replica_has_gone(redis: ArqRedis, store: ResponseStore) -> None:
    await accepted(redis, store, completion(1), ANSWER)
    await accepted(redis, store, completion(2), ANSWER[:2], runs=True)
    await accepted(redis, store, completion(3), (*ANSWER[:2], FAILURE))
    await finish_completions(store, OWNER)
    page, _ = await store.select(OWNER, Selection())
    assert [one.id for one in page] == [completion(1).id]


async def test_a_response_that_runs_has_no_document(redis: ArqRedis, store: ResponseStore) -> None:
    await accepted(redis, store, completion(1), ANSWER[:2], runs=True)
    assert await find(store, OWNER, completion(1).id) is None
    for number, journal in ((2, ()), (3, ANSWER[:2])):
        await accepted(redis, store, response(number), journal, runs=True)
        found = await find(store, OWNER, response(number).id)
        assert found is not None
        assert (found.document, found.started) == (b"", bool(journal))


async def test_a_request_that_is_being_queued_is_not_lost(
    redis: ArqRedis, wall_clock: WallClock, store: ResponseStore
) -> None:
    await store.create(OWNER, response(1))
    found = await find(store, OWNER, response(1).id)
    assert found is not None
    assert not found.document
    wall_clock.advance(61)
    found = await find(store, OWNER, response(1).id)
    assert found is not None
    assert json.loads(found.document)["status"] == "failed"


@pytest.mark.parametrize("end", [(), (FAILURE,), (CANCELLED,)], ids=["lost", "failed", "cancelled"])
async def test_only_a_background_response_is_kept_when_it_has_failed(
    redis: ArqRedis, store: ResponseStore, end: tuple[Event, ...]
) -> None:
    for record in (completion(1), response(2, background=False), response(3)):
        await accepted(redis, store, record, (*ANSWER[:2], *end))
        found = await find(store, OWNER, record.id)
        assert (found is not None) == record.background
        if found is not None:
            body = json.loads(found.document)
            assert (body["status"], body["output"][0]["content"][0]["text"]) == ("failed", "Hel")
        else:
            assert not await redis.exists(keys.stored(OWNER, record.id), keys.journal(record.jobs[0]))


@pytest.mark.parametrize("end", [(), (CANCELLED,)])
async def test_a_choice_that_was_complete_before_its_job_was_cancelled(
    redis: ArqRedis, store: ResponseStore, end: tuple[Event, ...]
) -> None:
    record = response(1, parallel_tool_calls=False)
    await accepted(redis, store, record, (*CALLS, *end))
    found = await find(store, OWNER, record.id)
    assert found is not None
    body = json.loads(found.document)
    assert (body["status"], [item["type"] for item in body["output"]]) == ("completed", ["function_call"])


async def test_a_damaged_journal_is_a_lost_response(redis: ArqRedis, store: ResponseStore) -> None:
    gap = (STARTED, Delta(5, (1,), "a"), Finished(6, "stop"))
    for record in (completion(1), response(2)):
        await accepted(redis, store, record, gap)
        found = await find(store, OWNER, record.id)
        assert (found is not None) == record.background
        if found is not None:
            assert json.loads(found.document)["error"]["message"].startswith("The response was lost")
