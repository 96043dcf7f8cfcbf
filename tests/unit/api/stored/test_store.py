"""Stored responses: kept, found, tagged, deleted, counted and evicted; and the queries for them."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from arq.connections import ArqRedis
from fakeredis import FakeAsyncRedis, FakeServer

from api.chat.routes import translated
from api.dialects.openai import OpenAI
from api.responses.completion_forms import parse_selection, parse_update, render_messages
from api.stored.record import Selection
from api.stored.store import ResponseStore
from shared.protocol.errors import ProblemKind, RequestRefused
from shared.redis import keys
from tests.support.redis_types import awaitable
from tests.support.stored import OWNER, completion, put, response, response_store
from tests.support.wall_clock import WallClock


@pytest.fixture
def store(redis: ArqRedis) -> ResponseStore:
    return response_store(redis)


def name(number: int) -> str:
    return completion(number).id


async def ids(store: ResponseStore, **fields: Any) -> tuple[list[int], bool]:
    page, more = await store.select(OWNER, Selection(**fields))
    return [int(one.bare_id, 16) for one in page], more


async def kept_bytes(redis: ArqRedis, owner: str) -> int:
    """The bytes that an owner's responses keep in the store, as they are counted."""
    total = 0
    for key in [*await redis.keys(keys.stored(owner, "*")), *await redis.keys(keys.stored_journal(owner, "*"))]:
        if await redis.type(key) == b"hash":
            fields = await awaitable(redis.hgetall(key))
            total += sum(len(field) + len(value) for field, value in fields.items() if not field.startswith(b"counted"))
            for job in fields.get(b"jobs", b"").split():
                total += sum(map(len, await awaitable(redis.lrange(keys.journal(job.decode()), 0, -1))))
        else:
            total += sum(map(len, await awaitable(redis.lrange(key, 0, -1))))
    return total


async def counted(redis: ArqRedis) -> dict[str, int]:
    """The bytes that are counted for each owner; those of all are the total."""
    owners = await redis.zrange(keys.STORED_OWNERS, 0, -1, withscores=True)
    total = int(await awaitable(redis.hget(keys.STORED_SIZES, "")) or 0)
    assert total == sum(size for _, size in owners)
    return {owner.decode(): int(size) for owner, size in owners}


async def test_what_is_stored_is_found_for_a_while(store: ResponseStore, redis: ArqRedis) -> None:
    found = await put(store, completion(1, topic="sea"), b'{"id":"a"}')
    assert (found.model, found.input, found.metadata) == ("tiny", completion().input, {"topic": "sea"})
    assert (found.document, found.created, found.request, found.jobs) == (b'{"id":"a"}', 7, None, ())
    assert await store.get(OWNER, name(2)) is None
    assert await store.get(OWNER, "chatcmpl-1") is None
    assert 0 < await redis.pttl(keys.stored(OWNER, name(1))) <= 60_000


async def test_metadata_is_replaced(store: ResponseStore, redis: ArqRedis) -> None:
    await put(store, completion(1, topic="sea"))
    assert await store.tag(OWNER, name(1), {"mood": "calm"})
    found = await store.get(OWNER, name(1))
    assert found is not None
    assert found.metadata == {"mood": "calm"}
    assert not await store.tag(OWNER, name(2), {"mood": "calm"})
    assert not await redis.exists(keys.stored(OWNER, name(2)))


async def test_what_is_deleted_is_gone(store: ResponseStore, redis: ArqRedis) -> None:
    await put(store, completion(1))
    await put(store, response(2))
    await store.create(OWNER, completion(3))
    for one in (completion(1), response(2), completion(3)):
        await store.delete(OWNER, one.id)
        await store.delete(OWNER, one.id)
        assert await store.get(OWNER, one.id) is None
    assert await ids(store) == ([], False)
    assert await redis.keys("*stored:*") == []
    assert await counted(redis) == {}


async def test_a_page_of_large_completions_is_shorter(store: ResponseStore) -> None:
    """A page of a hundred would take gigabytes, and block the event loop for seconds."""
    for number in range(4):
        await put(store, completion(number, messages=b'[{"content":"%b"}]' % (b"a" * 5 * 2**20)))
    assert await ids(store, limit=100) == ([0, 1], True)
    assert await ids(store, limit=100, after=name(1)) == ([2, 3], False)


async def test_pages_in_both_orders(store: ResponseStore) -> None:
    for number in range(7):
        await put(store, completion(number))
        await put(store, response(100 + number))
    await store.create(OWNER, completion(9))
    assert await ids(store, limit=3) == ([0, 1, 2], True)
    assert await ids(store, limit=3, after=name(2)) == ([3, 4, 5], True)
    assert await ids(store, limit=3, after=name(5)) == ([6], False)
    assert await ids(store, limit=3, newest_first=True) == ([6, 5, 4], True)
    assert await ids(store, limit=9, newest_first=True, after=name(3)) == ([2, 1, 0], False)
    with pytest.raises(RequestRefused, match="nothing with id 'unknown' found"):
        await ids(store, after="unknown")


async def test_filters_look_beyond_what_does_not_fit(store: ResponseStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.stored.store._SCAN", 10)
    for number in range(25):
        await put(store, completion(number, "even" if number % 2 == 0 else "odd", third=str(number % 3)))
    assert await ids(store, model="odd", metadata={"third": "0"}, limit=2) == ([3, 9], True)
    assert await ids(store, metadata={"third": "0"}, after=name(21), limit=2) == ([24], False)
    assert await ids(store, metadata={"third": "0", "fourth": "0"}) == ([], False)


async def test_owners_see_their_own_only(store: ResponseStore) -> None:
    await put(store, completion(1))
    for stranger in ("", "key-2"):
        assert await store.get(stranger, name(1)) is None
        assert not await store.tag(stranger, name(1), {"stolen": "yes"})
        await store.delete(stranger, name(1))
        assert await store.select(stranger, Selection()) == ([], False)
    assert await store.get(OWNER, name(1)) is not None


async def test_what_has_expired_is_neither_listed_nor_counted(redis: ArqRedis, wall_clock: WallClock) -> None:
    store = response_store(redis)
    await put(store, completion(1))
    await put(store, response(2), owner="key-2")
    wall_clock.advance(61)
    assert await ids(store) == ([], False)
    await put(store, completion(3))
    assert await counted(redis) == {OWNER: await kept_bytes(redis, OWNER)}
    assert await ids(store) == ([3], False)
    assert not await redis.exists(keys.stored_index("key-2"))


async def test_the_oldest_make_room(redis: ArqRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.stored.store.MAX_RESPONSES", 2)
    store = response_store(redis)
    for number in range(3):
        await put(store, completion(number))
    assert await ids(store) == ([1, 2], False)
    assert await store.get(OWNER, name(0)) is None


LOGPROBS = b"e" * 300


async def journalled(redis: ArqRedis, job: str, events: int) -> None:
    await awaitable(redis.rpush(keys.journal(job), *[LOGPROBS] * events))


async def test_everything_that_a_response_keeps_in_the_store_is_counted(
    store: ResponseStore, redis: ArqRedis, wall_clock: WallClock
) -> None:
    """150 background responses with log probabilities took 149 MiB, with a limit of 64 MiB."""
    for number in (1, 2):
        await store.create(OWNER, response(number))
        await journalled(redis, f"j{number}", 10)
    await store.create("key-2", completion(3, n=2))
    await journalled(redis, "j3:0", 5)
    wall_clock.advance(2)
    await store.create("key-2", completion(4))
    await store.create(OWNER, completion(5))
    assert await counted(redis) == {owner: await kept_bytes(redis, owner) for owner in (OWNER, "key-2")}
    await journalled(redis, "j1", 10)
    await journalled(redis, "j3:1", 5)
    assert await store.end(OWNER, response(1), b'{"a":1}')
    assert await store.end("key-2", completion(3, n=2), b'{"a":1}')
    sizes = await counted(redis)
    assert sizes == {owner: await kept_bytes(redis, owner) for owner in (OWNER, "key-2")}
    assert sizes[OWNER] > 30 * len(LOGPROBS) > 300 > sizes["key-2"] - 600, "the journals of completions are deleted"
    assert await store.tag(OWNER, response(1).id, {"a": "longer"})
    assert await counted(redis) == {owner: await kept_bytes(redis, owner) for owner in (OWNER, "key-2")}


async def test_the_oldest_that_have_ended_make_room_for_bytes(redis: ArqRedis) -> None:
    store = response_store(redis, bytes=12_000)
    await store.create(OWNER, response(1))
    for number in (2, 3):
        await store.create(OWNER, response(number))
        await journalled(redis, f"j{number}", 10)
        assert await store.end(OWNER, response(number), b"{}")
    await put(store, completion(4, messages=b'[{"content":"%b"}]' % (b"a" * 4000)))
    assert [await store.get(OWNER, response(number).id) is not None for number in (1, 2, 3)] == [True, False, True]
    assert await kept_bytes(redis, OWNER) <= 12_000
    await put(store, completion(5, owner_has="another"), owner="key-2")
    assert await store.end(OWNER, response(1), b'{"a":"%b"}' % (b"a" * 11_000))
    assert await store.get(OWNER, response(1).id) is not None, "the newest one stays, whatever its size"
    assert await store.get(OWNER, response(3).id) is None
    assert await store.get("key-2", name(5)) is not None


async def test_responses_that_run_are_not_evicted(
    redis: ArqRedis, wall_clock: WallClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer one evicted the record; its job kept its slot, and a cancellation got a 404."""
    monkeypatch.setattr("api.stored.store.MAX_RESPONSES", 3)
    store = response_store(redis, bytes=12_000)
    await put(store, completion(1))
    for number in (2, 3):
        await store.create(OWNER, response(number))
    await store.create(OWNER, response(4))
    with pytest.raises(RequestRefused) as refused:
        await store.create(OWNER, response(5))
    assert (refused.value.problem.kind, refused.value.problem.retry_after) == (ProblemKind.QUEUE_FULL, 5)
    await store.create("key-2", response(6))
    assert all([await store.get(OWNER, response(number).id) for number in (2, 3, 4)])
    assert await store.end(OWNER, response(4), b"{}")
    await journalled(redis, "j2", 40)
    wall_clock.advance(2)
    with pytest.raises(RequestRefused):
        await store.create(OWNER, response(5))
    assert await store.get(OWNER, response(4).id) is not None, "a refused request evicts nothing"
    await store.delete(OWNER, response(2).id)
    await store.create(OWNER, response(5))


async def test_a_record_that_never_fits_is_refused_for_good(redis: ArqRedis) -> None:
    store = response_store(redis, bytes=3000)
    with pytest.raises(RequestRefused, match="3000 bytes") as refused:
        await store.create(OWNER, completion(1, messages=b'[{"content":"%b"}]' % (b"a" * 4000)))
    assert (refused.value.problem.kind, refused.value.problem.param) == (ProblemKind.TOO_LARGE, "store")


async def test_the_owner_with_most_makes_room_for_others(redis: ArqRedis) -> None:
    store = response_store(redis, bytes=20_000, total_bytes=30_000)
    large = b'[{"content":"%b"}]' % (b"a" * 4000)
    for number in range(4):
        await put(store, completion(number, messages=large), owner="greedy")
    await put(store, completion(4, messages=large), owner="modest")
    for number in (5, 6, 7):
        await put(store, completion(number, messages=large), owner=f"new-{number}")
    sizes = await counted(redis)
    assert sum(sizes.values()) <= 30_000
    assert set(sizes) == {"greedy", "modest", "new-5", "new-6", "new-7"}
    assert await store.get("greedy", name(0)) is None
    assert await store.get("modest", name(4)) is not None


async def test_without_a_store_saving_is_given_up_and_reading_refused() -> None:
    server = FakeServer()
    server.connected = False
    fake = FakeAsyncRedis(server=server)
    store = response_store(ArqRedis(pool_or_conn=fake.connection_pool))
    assert not await store.save(OWNER, completion(), b"{}")
    with pytest.raises(RequestRefused) as refused:
        await store.get(OWNER, name(1))
    assert refused.value.problem.kind is ProblemKind.STORE_UNAVAILABLE


def test_the_messages_that_were_sent_are_kept() -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
    body = json.dumps({"model": "m", "messages": messages, "store": True}).encode()
    assert json.loads(translated(OpenAI(), body)[1]) == messages


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ({}, Selection()),
        ({"limit": "100", "order": "desc", "after": "a"}, Selection(limit=100, newest_first=True, after="a")),
        (
            {"metadata[a]": "1", "metadata[b]": "", "model": "m", "unknown": "1"},
            Selection(metadata={"a": "1", "b": ""}, model="m"),
        ),
    ],
)
def test_queries(query: Mapping[str, str], wanted: Selection) -> None:
    assert parse_selection(query) == wanted


@pytest.mark.parametrize(
    ("query", "param", "code"),
    [
        ({"limit": "0"}, "limit", "integer_below_min_value"),
        ({"limit": "101"}, "limit", "integer_above_max_value"),
        ({"limit": "ten"}, "limit", "invalid_type"),
        ({"order": "up"}, "order", "invalid_value"),
        ({f"metadata[{'k' * 65}]": ""}, f"metadata.{'k' * 65}", "property_name_above_max_length"),
    ],
)
def test_queries_that_are_wrong(query: Mapping[str, str], param: str, code: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        parse_selection(query)
    assert (refused.value.problem.param, refused.value.problem.code) == (param, code)


def test_updates() -> None:
    assert parse_update(b'{"metadata": {"a": "b"}}') == {"a": "b"}
    assert parse_update(b'{"metadata": null}') == {}
    for body in (b"{}", b'{"metadata": {"a": 1}}', b'{"metadata": {}, "model": "m"}', b"[]"):
        with pytest.raises(RequestRefused):
            parse_update(body)


def test_messages_come_in_pages() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None, "tool_calls": []},
    ]
    kept = msgspec.structs.replace(completion(messages=json.dumps(messages).encode()), id="c")
    page = json.loads(render_messages(kept, Selection(limit=2)))
    assert [message["id"] for message in page["data"]] == ["c-0", "c-1"]
    assert (page["first_id"], page["last_id"], page["has_more"]) == ("c-0", "c-1", True)
    assert (page["data"][1]["content"], page["data"][1]["content_parts"]) == ("a\nb", messages[1]["content"])
    rest = json.loads(render_messages(kept, Selection(after="c-1")))
    assert [(message["id"], message["content"]) for message in rest["data"]] == [("c-2", None)]
    newest = json.loads(render_messages(kept, Selection(newest_first=True, limit=1)))
    assert newest["last_id"] == "c-2"
    with pytest.raises(RequestRefused):
        render_messages(kept, Selection(after="d-1"))
