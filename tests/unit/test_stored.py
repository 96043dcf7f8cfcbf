"""Stored completions: kept, found, tagged, deleted and evicted, on a simulated Redis; and the queries for them."""

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from arq.connections import ArqRedis
from fakeredis import FakeAsyncRedis, FakeServer

from api.dialects.openai.stored import parse_selection, parse_update, render_messages, sent_messages, to_store
from api.stored import CompletionStore, Selection, StoredCompletion
from shared.protocol.errors import ProblemKind, RequestRefused
from shared.protocol.request import ChatRequest
from shared.redis import keys

OWNER = "key-1"


@pytest.fixture
async def redis() -> AsyncIterator[ArqRedis]:
    fake = FakeAsyncRedis(server=FakeServer())
    yield ArqRedis(pool_or_conn=fake.connection_pool)
    await fake.aclose()


@pytest.fixture
def store(redis: ArqRedis) -> CompletionStore:
    return CompletionStore(redis, ttl=60, limit=1000, max_bytes=2**26)


def completion(name: str, model: str = "m", messages: bytes = b"[]", **metadata: str) -> StoredCompletion:
    document = json.dumps({"id": name}).encode()
    return StoredCompletion(id=name, model=model, document=document, messages=messages, metadata=metadata)


async def ids(store: CompletionStore, **fields: Any) -> tuple[list[str], bool] | None:
    page = await store.select(OWNER, Selection(**fields))
    return None if page is None else ([one.id for one in page[0]], page[1])


async def test_what_is_saved_is_found_for_a_while(store: CompletionStore, redis: ArqRedis) -> None:
    await store.save(OWNER, completion("a", topic="sea"))
    assert await store.get(OWNER, "a") == completion("a", topic="sea")
    assert await store.get(OWNER, "b") is None
    assert 0 < await redis.pttl(keys.stored(OWNER, "a")) <= 60_000


async def test_metadata_is_replaced(store: CompletionStore, redis: ArqRedis) -> None:
    await store.save(OWNER, completion("a", topic="sea"))
    assert await store.tag(OWNER, "a", {"mood": "calm"})
    assert await store.get(OWNER, "a") == completion("a", mood="calm")
    assert not await store.tag(OWNER, "b", {"mood": "calm"})
    assert not await redis.exists(keys.stored(OWNER, "b"))


async def test_what_is_deleted_is_gone(store: CompletionStore) -> None:
    await store.save(OWNER, completion("a"))
    assert await store.delete(OWNER, "a")
    assert not await store.delete(OWNER, "a")
    assert await store.get(OWNER, "a") is None
    assert await ids(store) == ([], False)


async def test_a_page_of_large_completions_is_shorter(store: CompletionStore) -> None:
    """A page of a hundred would take gigabytes, and block the event loop for seconds."""
    names = [f"c{number}" for number in range(4)]
    for name in names:
        await store.save(OWNER, completion(name, messages=b'[{"content":"%b"}]' % (b"a" * 5 * 2**20)))
    assert await ids(store, limit=100) == (names[:2], True)
    assert await ids(store, limit=100, after=names[1]) == (names[2:], False)


async def test_pages_in_both_orders(store: CompletionStore) -> None:
    names = [f"c{number:03}" for number in range(7)]
    for name in names:
        await store.save(OWNER, completion(name))
    assert await ids(store, limit=3) == (names[:3], True)
    assert await ids(store, limit=3, after="c002") == (names[3:6], True)
    assert await ids(store, limit=3, after="c005") == (names[6:], False)
    assert await ids(store, limit=3, newest_first=True) == (names[:3:-1], True)
    assert await ids(store, limit=9, newest_first=True, after="c003") == (names[2::-1], False)
    assert await ids(store, after="unknown") is None


async def test_filters_look_beyond_what_does_not_fit(store: CompletionStore) -> None:
    for number in range(250):
        await store.save(
            OWNER, completion(f"c{number:03}", "even" if number % 2 == 0 else "odd", third=str(number % 3))
        )
    assert await ids(store, model="odd", metadata={"third": "0"}, limit=2) == (["c003", "c009"], True)
    assert await ids(store, metadata={"third": "0"}, after="c246", limit=2) == (["c249"], False)
    assert await ids(store, metadata={"third": "0", "fourth": "0"}) == ([], False)


async def test_the_oldest_make_room(redis: ArqRedis) -> None:
    store = CompletionStore(redis, ttl=60, limit=2, max_bytes=2**26)
    for name in "abc":
        await store.save(OWNER, completion(name))
    assert await ids(store) == (["b", "c"], False)
    assert await store.get(OWNER, "a") is None


async def test_the_oldest_make_room_for_large_ones(redis: ArqRedis) -> None:
    store = CompletionStore(redis, ttl=60, limit=10, max_bytes=10_000)
    large = b'[{"content":"%b"}]' % (b"a" * 4000)
    await store.save("key-2", completion("z"))
    for name in "abcd":
        await store.save(OWNER, completion(name, messages=large if name in "bd" else b"[]"))
    assert await ids(store) == (["a", "b", "c", "d"], False), "8,000 bytes fit"
    await store.save(OWNER, completion("e", messages=large))
    assert await ids(store) == (["c", "d", "e"], False)
    assert await store.get(OWNER, "a") is None
    assert await store.get("key-2", "z") is not None
    await store.save(OWNER, completion("f", messages=b'[{"content":"%b"}]' % (b"a" * 20_000)))
    assert await ids(store) == (["f"], False), "the newest one stays, whatever its size"
    await redis.set(keys.stored(OWNER, "f"), "damaged")
    assert await store.save(OWNER, completion("g", messages=large))
    assert await store.get(OWNER, "g") is not None


async def test_owners_see_their_own_only(store: CompletionStore) -> None:
    await store.save(OWNER, completion("a"))
    for stranger in ("", "key-2"):
        assert await store.get(stranger, "a") is None
        assert not await store.tag(stranger, "a", {"stolen": "yes"})
        assert not await store.delete(stranger, "a")
        assert await store.select(stranger, Selection()) == ([], False)
    assert await store.get(OWNER, "a") == completion("a")


async def test_what_has_lapsed_is_not_listed(store: CompletionStore, redis: ArqRedis) -> None:
    for name in "ab":
        await store.save(OWNER, completion(name))
    await redis.delete(keys.stored(OWNER, "a"))
    assert await ids(store) == (["b"], False)


async def test_without_a_store_saving_is_given_up_and_reading_refused() -> None:
    server = FakeServer()
    server.connected = False
    fake = FakeAsyncRedis(server=server)
    store = CompletionStore(ArqRedis(pool_or_conn=fake.connection_pool), ttl=60, limit=1, max_bytes=2**26)
    await store.save(OWNER, completion("a"))
    with pytest.raises(RequestRefused) as refused:
        await store.get(OWNER, "a")
    assert refused.value.problem.kind is ProblemKind.STORE_UNAVAILABLE


def test_an_answer_is_kept_with_its_messages_and_metadata() -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
    body = json.dumps({"model": "m", "messages": messages, "store": True}).encode()
    request = ChatRequest(model="m", metadata=(("topic", "sea"),))
    kept = to_store(b'{"id":"chatcmpl-1","choices":[]}', request, sent_messages(body))
    assert (kept.id, kept.model, kept.metadata, json.loads(kept.messages)) == (
        "chatcmpl-1",
        "m",
        {"topic": "sea"},
        messages,
    )


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
    kept = completion("c", messages=json.dumps(messages).encode())
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
