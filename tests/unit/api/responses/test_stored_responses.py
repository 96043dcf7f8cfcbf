"""Stored responses of the Responses API: ended once, and streamed again with the same events; and histories."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from arq.connections import ArqRedis
from msgspec.structs import replace

from api.chat.queue_events import QueueEvents
from api.dialects.responses import Responses
from api.dialects.responses.parse import ValidatedRequest
from api.dialects.responses.render import ResponsesEncoder
from api.dialects.responses.schema import ResponsesRequest
from api.fairness import FairThread
from api.http.bodies import BodyParser
from api.models.directory import Directory
from api.records.errors import store_unavailable
from api.responses.conversation import stored_conversation
from api.responses.replay import follow
from api.stored.store import ResponseStore
from shared.protocol.errors import Problem, ProblemKind, RequestRefused
from shared.protocol.events import Delta, Event, Failed, Finished, Started, encode_event
from shared.redis import keys
from shared.runtime.settings import ApiSettings
from tests.support.answers import job_queues
from tests.support.eventually import PATIENCE
from tests.support.redis_types import awaitable
from tests.support.stored import MESSAGES, document, put, response, response_store
from tests.support.wall_clock import WallClock

TTL = 60.0
STARTED = Started("w1", 3, "fp", tools="hermes", reasoning="think")
TEXTS = ("<think>", "Hm", ".</think>", "Hel", "lo", '<tool_call>{"name": "f", ', '"arguments": {"a": 1}}</tool_call>')
JOURNAL: tuple[Event, ...] = (
    STARTED,
    *(Delta(position, (1,), text) for position, text in enumerate(TEXTS[:4])),
    STARTED,  # another attempt
    *(Delta(position, (1,), text) for position, text in enumerate(TEXTS) if position > 3),
    Finished(len(TEXTS), "stop"),
)
PARSER = BodyParser(ApiSettings(), FairThread())
RUNNING = response(1)


@pytest.fixture
async def store(redis: ArqRedis) -> ResponseStore:
    store = response_store(redis, ttl=TTL)
    await store.create("k", RUNNING)
    await redis.set(keys.payload("j1"), "?")
    return store


async def journalled(redis: ArqRedis, events: tuple[Event, ...], job: str = "j1") -> None:
    await awaitable(redis.rpush(keys.journal(job), *map(encode_event, events)))


async def streamed(store: ResponseStore, after: int = -1) -> list[dict[str, Any]]:
    pieces = [piece async for piece in follow(store, "k", RUNNING, after=after)]
    lines = b"".join(pieces).decode().split("\n")
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]


async def test_a_stream_has_the_same_events_wherever_it_starts(redis: ArqRedis, store: ResponseStore) -> None:
    await journalled(redis, JOURNAL)
    assert await store.end("k", RUNNING, document())
    whole = await streamed(store)
    assert [event["sequence_number"] for event in whole] == list(range(len(whole)))
    assert whole[-1] == {
        "type": "response.completed",
        "response": json.loads(document()),
        "sequence_number": len(whole) - 1,
    }
    for after in range(len(whole)):
        assert await streamed(store, after) == whole[after + 1 :]
    done = [event["item"] for event in whole if event["type"] == "response.output_item.done"]
    assert [item["type"] for item in done] == ["reasoning", "message", "function_call"]
    assert (done[1]["content"][0]["text"], json.loads(done[2]["arguments"])) == ("Hello", {"a": 1})


async def test_the_events_of_a_stream_do_not_depend_on_when_they_are_read(
    redis: ArqRedis, store: ResponseStore
) -> None:

    async def whole() -> bytes:
        return b"".join([piece async for piece in follow(store, "k", RUNNING, after=-1)])

    live = asyncio.create_task(whole())
    for event in JOURNAL:
        await journalled(redis, (event,))
        await asyncio.sleep(0.01)
    await store.end("k", RUNNING, document())
    assert await live == await whole()


async def test_queue_events_of_a_background_response(redis: ArqRedis, store: ResponseStore) -> None:
    class Places(QueueEvents):
        async def place(self, model: str, job: str) -> bytes:
            return f": {job}\n\n".encode()

    places = Places(job_queues(redis), Directory(redis))
    stream = follow(store, "k", RUNNING, after=-1, queue_events=places)
    opening = [await anext(stream), await anext(stream)]
    assert opening[1] == b": j1\n\n"
    moved = replace(STARTED, attempt=2, cause="worker_lost")
    await journalled(redis, (STARTED, Delta(0, (1,), "Hel"), moved, Delta(1, (1,), "lo"), Finished(2, "stop")))
    late = follow(store, "k", RUNNING, after=-1, queue_events=places)
    assert [await anext(late), (await anext(late)).endswith(b": j1\n\n")] == [opening[0], True]
    await store.end("k", RUNNING, document())
    rest = [piece async for piece in stream]
    comments = [line for line in b"".join(rest).split(b"\n") if line.startswith(b":")]
    assert comments == [b': {"attempt":{"number":2,"cause":"worker_lost"}}']
    plain = b"".join([piece async for piece in follow(store, "k", RUNNING, after=-1)])
    assert b"".join([opening[0], *rest]).replace(comments[0] + b"\n\n", b"") == plain


@pytest.mark.parametrize(("others", "pause"), [(0, 0.02), (159, 0.2), (1000, 0.3)])
async def test_many_streams_read_less_often(
    redis: ArqRedis, store: ResponseStore, monkeypatch: pytest.MonkeyPatch, others: int, pause: float
) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await store.end("k", RUNNING, document())

    monkeypatch.setattr("api.responses.replay.asyncio", SimpleNamespace(sleep=sleep))
    await journalled(redis, JOURNAL)
    store.followers = others
    assert [piece async for piece in follow(store, "k", RUNNING, after=-1)]
    assert (pauses, store.followers) == ([pause], others)


async def test_the_progress_of_a_response(redis: ArqRedis, wall_clock: WallClock, store: ResponseStore) -> None:
    started, over, age = await store.progress("k", RUNNING)
    assert (started, over) == (False, False)
    assert 0 <= age < PATIENCE
    await journalled(redis, JOURNAL[:1])
    await redis.delete(keys.payload("j1"))
    wall_clock.advance(1000)
    started, over, age = await store.progress("k", RUNNING)
    assert (started, over) == (True, True)
    assert 1000 <= age < 1000 + PATIENCE


async def test_a_response_ends_once(redis: ArqRedis, store: ResponseStore) -> None:
    await journalled(redis, JOURNAL[:3])
    assert await store.end("k", RUNNING, document("cancelled"))
    assert not await store.end("k", RUNNING, document("completed"))
    await journalled(redis, JOURNAL[3:])
    found = await store.get("k", RUNNING.id)
    assert found is not None
    assert (json.loads(found.document)["status"], found.jobs) == ("cancelled", ())
    events = await streamed(store)
    assert (events[-1]["type"], events[-1]["response"]["status"]) == ("response.incomplete", "cancelled")
    assert not any(event["type"] == "response.output_item.done" for event in events), "nothing was added"


async def test_a_stream_ends_although_nobody_ended_its_response(
    redis: ArqRedis, store: ResponseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replica that should have ended it has gone: whoever reads makes the document."""
    monkeypatch.setattr("api.responses.replay._PAUSE", (0.001, 0.01))
    await journalled(redis, JOURNAL)
    await redis.delete(keys.payload("j1"))
    whole = await streamed(store)
    assert whole[-1]["type"] == "response.completed"
    assert [item["type"] for item in whole[-1]["response"]["output"]] == ["reasoning", "message", "function_call"]
    assert await streamed(store) == whole


async def test_a_stream_of_a_lost_response_ends(
    redis: ArqRedis, store: ResponseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It read the journal of a lost job for ever."""
    monkeypatch.setattr("api.responses.replay._PAUSE", (0.001, 0.01))
    await journalled(redis, JOURNAL[:3])
    await redis.delete(keys.payload("j1"))
    last = (await streamed(store))[-1]
    assert (last["type"], last["response"]["error"]["code"]) == ("response.failed", "server_error")


@pytest.mark.parametrize("kept", [0, 3, 5])
async def test_a_stream_whose_journal_the_store_has_rewound_ends_with_an_error(
    redis: ArqRedis, store: ResponseStore, kept: int
) -> None:
    """A failover has lost the last writes, and another attempt has generated other tokens."""
    words = tuple(Delta(position, (position,), f" {position}") for position in range(4))
    others = tuple(Delta(position, (7,), "other ") for position in range(6))
    first, again = (Started("w1", 3, "fp", prompt_seconds=seconds) for seconds in (0.1, 0.2))
    await journalled(redis, (first, *words))
    stream = follow(store, "k", RUNNING, after=-1)
    read = b""
    while b'" 3"' not in read:
        read += await anext(stream)
    # A negative end removes all of its five events and more.
    await awaitable(redis.ltrim(keys.journal("j1"), 0, kept - 1 if kept else -6))
    await journalled(redis, (again, *others[max(kept - 1, 0) :], Finished(6, "stop")))
    await store.end("k", RUNNING, document())
    rest = b"".join([piece async for piece in stream])
    if kept == 5:
        assert b"response.completed" in rest, "nothing was lost"
    else:
        assert b"other" not in rest
        assert b"lost in an outage" in rest


async def test_a_failed_response_ends_its_stream(redis: ArqRedis, store: ResponseStore) -> None:
    await journalled(redis, (*JOURNAL[:3], Failed(Problem(kind=ProblemKind.LOST, message="Gone."))))
    assert RUNNING.request is not None
    encoder = ResponsesEncoder(RUNNING.request, response_id="1", created=7)
    encoder.failure(Problem(kind=ProblemKind.LOST, message="Gone."))
    await store.end("k", RUNNING, encoder.document)
    assert (await streamed(store))[-1]["response"]["error"]["message"] == "Gone."


async def test_a_deleted_response_ends_its_stream_with_an_error(redis: ArqRedis, store: ResponseStore) -> None:
    await journalled(redis, JOURNAL[:3])
    await store.delete("k", RUNNING.id)
    assert (await streamed(store))[-1]["type"] == "error"


async def test_a_stream_ends_with_an_error_if_the_store_stays_away(
    store: ResponseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise store_unavailable()

    monkeypatch.setattr(store, "journal", fail)
    monkeypatch.setattr("api.responses.replay._OUTAGE", 0.0)
    assert "can't be reached" in (await streamed(store))[-1]["error"]["message"]


async def test_a_conversation_is_read_from_its_responses(redis: ArqRedis, store: ResponseStore) -> None:
    first = response(2, background=False)
    second = response(3, background=False, messages=b'[{"role":"user","content":"b"}]', previous_response_id=first.id)
    await put(store, first, document(text="one"), "k")
    await put(store, second, document(text="two"), "k")
    await redis.pexpire(keys.stored("k", first.id), int(TTL * 500))
    index = keys.stored_index("k")
    await redis.zadd(index, {first.id: 2.0, second.id: 1.0})
    valid = Responses().validate(json.dumps({"model": "m", "input": "c", "previous_response_id": second.id}).encode())
    messages = valid.request(await stored_conversation(store, PARSER, "k", valid, max_bytes=1000), store=True).messages
    assert [message.content for message in messages] == ["a", "one", "b", "two", "c"]
    assert await redis.pttl(keys.stored("k", first.id)) > TTL * 500
    assert await redis.zrange(index, 0, -1) == [first.id.encode(), second.id.encode()], "they count as new ones"
    with pytest.raises(RequestRefused, match="not found"):
        await stored_conversation(store, PARSER, "another", valid, max_bytes=1000)
    running = Responses().validate(
        json.dumps({"model": "m", "input": "c", "previous_response_id": RUNNING.id}).encode()
    )
    with pytest.raises(RequestRefused, match="still in progress"):
        await stored_conversation(store, PARSER, "k", running, max_bytes=1000)


@pytest.mark.parametrize("continued", [True, False])
async def test_a_small_request_cannot_have_a_large_history(store: ResponseStore, *, continued: bool) -> None:
    """All of it is read and validated in the event loop, which other requests share."""
    large = b"[%b]" % b",".join([b'{"role":"user","content":[]}'] * 60_000)
    sizes = (len(MESSAGES) + len(document()), len(large) + len(document()))
    turns = (
        response(2, background=False),
        response(3, background=False, messages=large, previous_response_id=response(2).id),
    )
    for turn in turns:
        await put(store, turn, document(), "k")

    def valid(number: int) -> ValidatedRequest[ResponsesRequest]:
        referred = {"input": [{"type": "item_reference", "id": f"msg_{2 + number:032x}8000"}]}
        more = {"input": "b", "previous_response_id": turns[number].id} if continued else referred
        return Responses().validate(json.dumps({"model": "m", **more}).encode())

    await stored_conversation(store, PARSER, "k", valid(0), max_bytes=sizes[0])
    for number, limit, what in ((0, sizes[0] - 1, "bytes"), (1, sum(sizes), "values")):
        with pytest.raises(RequestRefused, match=what) as refused:
            await stored_conversation(store, PARSER, "k", valid(number), max_bytes=limit)
        assert refused.value.problem.param == ("previous_response_id" if continued else "input")


async def test_an_item_is_referred_to_once(store: ResponseStore) -> None:
    """Each reference takes the memory of the item."""
    reference = {"type": "item_reference", "id": f"msg_{1:032x}8000"}
    valid = Responses().validate(json.dumps({"model": "m", "input": [reference, {"id": reference["id"]}]}).encode())
    with pytest.raises(RequestRefused, match="Duplicate item found with id msg_") as refused:
        await stored_conversation(store, PARSER, "k", valid, max_bytes=1000)
    assert refused.value.problem.param == "input"


async def test_unreadable_records_are_not_found(redis: ArqRedis, store: ResponseStore) -> None:
    key = keys.stored("k", RUNNING.id)
    whole = await awaitable(redis.hgetall(key))
    for damaged in ({b"document": b"{"}, {b"input": b"{}"}, {b"request": b"?"}, {b"jobs": b""}, {b"created": b"a"}):
        await awaitable(redis.hset(key, mapping=whole | damaged))
        assert await store.get("k", RUNNING.id) is None
        await redis.delete(key)
    assert await store.get("k", "resp_1") is None
