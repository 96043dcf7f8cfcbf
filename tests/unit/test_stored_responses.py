"""Stored responses: ended once, evicted with their journals, and streamed again with the same events."""

import asyncio
import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from arq.connections import ArqRedis
from fakeredis import FakeAsyncRedis

from api.body_parser import BodyParser
from api.dialects.responses import Draft, Responses
from api.dialects.responses.render import ResponsesEncoder
from api.dialects.responses.schema import ResponsesRequest
from api.responses.history import history_of
from api.responses.record import StoredResponse
from api.responses.replay import follow
from api.responses.store import ResponseStore
from shared.protocol.errors import Problem, ProblemKind, RequestRefused
from shared.protocol.events import Delta, Event, Failed, Finished, Started, encode_event
from shared.protocol.request import ChatRequest
from shared.redis import keys
from shared.runtime.settings import ApiSettings
from tests.support.eventually import PATIENCE
from tests.support.redis_types import awaitable

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
PARSER = BodyParser(ApiSettings())
OUTBOX = (keys.outbox("r"), "a")


@pytest.fixture
async def redis() -> AsyncIterator[ArqRedis]:
    fake = FakeAsyncRedis()
    yield ArqRedis(pool_or_conn=fake.connection_pool)
    await fake.aclose()


@pytest.fixture
def store(redis: ArqRedis) -> ResponseStore:
    return ResponseStore(redis, ttl=TTL, limit=2, max_bytes=2**26)


def request() -> ChatRequest:
    tool = {"type": "function", "name": "f"}
    return Responses().parse(json.dumps({"model": "m", "input": "a", "background": True, "tools": [tool]}).encode())


def running(number: int = 1) -> StoredResponse:
    return StoredResponse(
        id=f"resp_{number:032x}", document=b"", input=b'[{"role":"user","content":"a"}]', job=f"j{number}",
        request=request(), created=7,
    )  # fmt: skip


def document(status: str = "completed", text: str = "Hi") -> bytes:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    output = [{"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": content}]
    return json.dumps({"id": "resp", "status": status, "output": output}).encode()


async def journalled(redis: ArqRedis, events: tuple[Event, ...], job: str = "j1") -> None:
    await awaitable(redis.rpush(keys.journal(job), *map(encode_event, events)))


async def ended(store: ResponseStore, record: StoredResponse, body: bytes) -> bool:
    return await store.end("k", StoredResponse(id=record.id, document=body, input=b"[]", job=record.job))


async def streamed(store: ResponseStore, after: int = -1) -> list[dict[str, Any]]:
    pieces = [piece async for piece in follow(store, "k", running(), after=after)]
    lines = b"".join(pieces).decode().split("\n")
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]


async def test_a_stream_has_the_same_events_wherever_it_starts(redis: ArqRedis, store: ResponseStore) -> None:
    await store.create("k", running())
    await journalled(redis, JOURNAL)
    assert await ended(store, running(), document())
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
    await store.create("k", running())

    async def whole() -> bytes:
        return b"".join([piece async for piece in follow(store, "k", running(), after=-1)])

    live = asyncio.create_task(whole())
    for event in JOURNAL:
        await journalled(redis, (event,))
        await asyncio.sleep(0.01)
    await ended(store, running(), document())
    assert await live == await whole()


@pytest.mark.parametrize(("others", "pause"), [(0, 0.02), (159, 0.2), (1000, 0.3)])
async def test_many_streams_read_less_often(
    redis: ArqRedis, store: ResponseStore, monkeypatch: pytest.MonkeyPatch, others: int, pause: float
) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await ended(store, running(), document())

    monkeypatch.setattr("api.responses.replay.asyncio", SimpleNamespace(sleep=sleep))
    await store.create("k", running())
    await journalled(redis, JOURNAL)
    store.followers = others
    assert [piece async for piece in follow(store, "k", running(), after=-1)]
    assert (pauses, store.followers) == ([pause], others)


async def test_the_age_of_a_response_is_by_the_clock_of_the_store(redis: ArqRedis, store: ResponseStore) -> None:
    await store.create("k", running())
    started, age = await store.progress("k", running())
    assert not started
    assert 0 <= age < PATIENCE
    await journalled(redis, JOURNAL[:1])
    await redis.zincrby(keys.stored_response_index("k"), -1000, running().id)
    started, age = await store.progress("k", running())
    assert started
    assert 1000 <= age < 1000 + PATIENCE
    await redis.delete(keys.stored_response_index("k"))
    assert await store.progress("k", running()) == (True, 0)


async def test_a_response_ends_once(redis: ArqRedis, store: ResponseStore) -> None:
    await store.create("k", running())
    await journalled(redis, JOURNAL[:3])
    assert await ended(store, running(), document("cancelled"))
    assert not await ended(store, running(), document("completed"))
    await awaitable(redis.hset(*OUTBOX, "pending"))
    assert await store.save("k", running(), fulfils=OUTBOX)
    assert await awaitable(redis.hlen(OUTBOX[0])) == 0
    found = await store.get("k", running().id)
    assert found is not None
    assert (json.loads(found.document)["status"], found.job) == ("cancelled", "")
    events = await streamed(store)
    assert (events[-1]["type"], events[-1]["response"]["status"]) == ("response.incomplete", "cancelled")


async def test_a_failed_response_ends_its_stream(redis: ArqRedis, store: ResponseStore) -> None:
    await store.create("k", running())
    await journalled(redis, (*JOURNAL[:3], Failed(Problem(kind=ProblemKind.LOST, message="Gone."))))
    encoder = ResponsesEncoder(request(), answer_id="1", created=7)
    encoder.failure(Problem(kind=ProblemKind.LOST, message="Gone."))
    await ended(store, running(), encoder.document)
    assert (await streamed(store))[-1]["response"]["error"]["message"] == "Gone."


async def test_a_deleted_response_ends_its_stream_with_an_error(redis: ArqRedis, store: ResponseStore) -> None:
    await store.create("k", running())
    await journalled(redis, JOURNAL[:3])
    assert await store.delete("k", running().id)
    assert (await streamed(store))[-1]["type"] == "error"
    assert not await store.delete("k", running().id)


async def test_the_oldest_responses_are_evicted_with_their_journals(redis: ArqRedis, store: ResponseStore) -> None:
    for number in (1, 2, 3):
        await store.create("k", running(number))
        await journalled(redis, JOURNAL, f"j{number}")
        await ended(store, running(number), document())
    left = {key.decode() for key in await redis.keys("*stored-response*")}
    assert left == {
        keys.stored_response_index("k"),
        *(name("k", running(number).id) for name in (keys.stored_response, keys.kept_journal) for number in (2, 3)),
    }
    assert all([0 < await redis.pttl(key) <= TTL * 1000 for key in left])


async def test_the_oldest_responses_make_room_for_large_ones(redis: ArqRedis) -> None:
    store = ResponseStore(redis, ttl=TTL, limit=2, max_bytes=5000)
    await store.create("k", running(1))
    await journalled(redis, JOURNAL, "j1")
    await ended(store, running(1), document())
    large = StoredResponse(id=running(2).id, document=document(), input=b'["%b"]' % (b"a" * 5000))
    assert await store.save("k", large, fulfils=OUTBOX)
    assert {key.decode() for key in await redis.keys("*stored-response*")} == {
        keys.stored_response_index("k"),
        keys.stored_response("k", large.id),
    }


async def test_a_conversation_is_read_from_its_responses(redis: ArqRedis, store: ResponseStore) -> None:
    first = StoredResponse(id=f"resp_{1:032x}", document=document(text="one"), input=b'[{"role":"user","content":"a"}]')
    second = StoredResponse(
        id=f"resp_{2:032x}",
        document=document(text="two"),
        input=b'[{"role":"user","content":"b"}]',
        previous=first.id,
    )
    for record in (first, second):
        assert await store.save("k", record, fulfils=OUTBOX)
    await redis.pexpire(keys.stored_response("k", first.id), int(TTL * 500))
    index = keys.stored_response_index("k")
    await redis.zadd(index, {first.id: 2.0, second.id: 1.0})
    draft = Responses().draft(json.dumps({"model": "m", "input": "c", "previous_response_id": second.id}).encode())
    messages = draft.request(await history_of(store, PARSER, "k", draft, max_bytes=1000), store=True).messages
    assert [message.content for message in messages] == ["a", "one", "b", "two", "c"]
    assert await redis.pttl(keys.stored_response("k", first.id)) > TTL * 500
    third = StoredResponse(id=f"resp_{3:032x}", document=document(), input=b"[]", previous=second.id)
    assert await store.save("k", third, fulfils=OUTBOX)
    assert await redis.zrange(index, 0, -1) == [second.id.encode(), third.id.encode()], "they count, in this order"
    with pytest.raises(RequestRefused, match="not found"):
        await history_of(store, PARSER, "another", draft, max_bytes=1000)


@pytest.mark.parametrize("continued", [True, False])
async def test_a_small_request_cannot_have_a_large_history(store: ResponseStore, *, continued: bool) -> None:
    """All of it is read and validated in the event loop, which other requests share."""
    small, large = b'[{"role":"user","content":"a"}]', b"[%b]" % b",".join([b'{"role":"user","content":[]}'] * 60_000)
    sizes = (len(small) + len(document()), len(large) + len(document()))
    for number, texts in enumerate([small, large]):
        turn = StoredResponse(
            id=f"resp_{number:032x}", document=document(), input=texts, previous=f"resp_{0:032x}" if number else ""
        )
        assert await store.save("k", turn, fulfils=OUTBOX)

    def draft(number: int) -> Draft[ResponsesRequest]:
        referred = {"input": [{"type": "item_reference", "id": f"msg_{number:032x}8000"}]}
        more = {"input": "b", "previous_response_id": f"resp_{number:032x}"} if continued else referred
        return Responses().draft(json.dumps({"model": "m", **more}).encode())

    await history_of(store, PARSER, "k", draft(0), max_bytes=sizes[0])
    for number, limit, what in ((0, sizes[0] - 1, "bytes"), (1, sum(sizes), "values")):
        with pytest.raises(RequestRefused, match=what) as refused:
            await history_of(store, PARSER, "k", draft(number), max_bytes=limit)
        assert refused.value.problem.param == ("previous_response_id" if continued else "input")


async def test_an_item_is_referred_to_once(store: ResponseStore) -> None:
    """Each reference takes the memory of the item."""
    reference = {"type": "item_reference", "id": f"msg_{1:032x}8000"}
    draft = Responses().draft(json.dumps({"model": "m", "input": [reference, {"id": reference["id"]}]}).encode())
    with pytest.raises(RequestRefused, match="Duplicate item found with id msg_") as refused:
        await history_of(store, PARSER, "k", draft, max_bytes=1000)
    assert refused.value.problem.param == "input"


async def test_unreadable_records_are_not_found(redis: ArqRedis, store: ResponseStore) -> None:
    record = running()
    for fields in ({"document": "{", "input": "[]"}, {"document": "", "input": "[]", "job": "j"}, {"input": "[]"}):
        await redis.delete(keys.stored_response("k", record.id))
        await awaitable(redis.hset(keys.stored_response("k", record.id), mapping=fields))
        assert await store.get("k", record.id) is None
    await redis.delete(keys.stored_response("k", record.id))
    await redis.set(keys.stored_response("k", record.id), "x")
    assert await store.get("k", record.id) is None
    assert await store.get("k", "resp_1") is None
