"""Many questions over one line, and redis-py's commands on top of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from redis.exceptions import ConnectionError, NoPermissionError, TimeoutError

import shared.redis.raw_connection as raw_connection_module
from shared.redis import command_pipeline
from shared.redis.client import connect, raw_connection
from shared.redis.command_pipeline import CommandPipeline
from tests.support.eventually import PATIENCE, eventually
from tests.support.redis_types import command
from tests.unit.shared.redis.fake_redis_server import LittleStore, fake_redis_server


@pytest.fixture
async def store() -> AsyncIterator[LittleStore]:
    async with fake_redis_server(tls=False) as running:
        yield running


@pytest.fixture
async def pipeline(store: LittleStore) -> AsyncIterator[CommandPipeline]:
    made = CommandPipeline(raw_connection(store.url), timeout=PATIENCE)
    yield made
    made.close()


async def without_reply(store: LittleStore, pipeline: CommandPipeline) -> asyncio.Task[bytes]:
    """A question that the store has heard and says nothing to."""
    await pipeline.execute("ECHO", "open")
    store.silent = True
    waiting = asyncio.create_task(pipeline.execute("ECHO", "x"))
    await eventually(lambda: [b"ECHO", b"x"] in store.heard)
    return waiting


async def test_each_gets_the_reply_to_its_own_command_over_one_connection(
    store: LittleStore, pipeline: CommandPipeline
) -> None:
    texts = [b"%d" % number for number in range(100)]
    assert await asyncio.gather(*(pipeline.execute("ECHO", text) for text in texts)) == texts
    assert len(store.connections) == 1


async def test_an_error_is_for_the_one_who_caused_it(pipeline: CommandPipeline) -> None:
    questions = (("ECHO", "before"), ("REFUSE",), ("ECHO", "after"))
    before, refused, after = await asyncio.gather(
        *(pipeline.execute(*words) for words in questions), return_exceptions=True
    )
    assert (before, after) == (b"before", b"after")
    assert isinstance(refused, NoPermissionError)


async def test_a_cancelled_command_leaves_the_others_their_replies(
    store: LittleStore, pipeline: CommandPipeline
) -> None:
    given_up = await without_reply(store, pipeline)
    given_up.cancel()
    store.silent = False
    # The answer that is due comes after all.
    store.connections[0].write(b"$5\r\nlate!\r\n")
    assert await pipeline.execute("ECHO", "next") == b"next"
    assert given_up.cancelled()


async def test_waiting_calls_fail_when_the_store_goes_and_the_next_one_reconnects(
    store: LittleStore, pipeline: CommandPipeline
) -> None:
    results = await asyncio.gather(pipeline.execute("HANG", "UP"), pipeline.execute("QUEUED"), return_exceptions=True)
    assert [type(result) for result in results] == [ConnectionError, ConnectionError]
    assert await pipeline.execute("ECHO", "again") == b"again"
    assert len(store.connections) == 2


async def test_a_store_that_says_nothing_is_given_up(store: LittleStore) -> None:
    pipeline = CommandPipeline(raw_connection(store.url), timeout=0.05)

    async def answered() -> bool:
        # On a busy machine, an answer may come too late as well.
        with suppress(TimeoutError):
            return bool(await pipeline.execute("ECHO", "x") == b"x")
        return False

    await eventually(answered)
    store.silent = True
    with pytest.raises(TimeoutError):
        await pipeline.execute("ECHO", "nothing")
    store.silent = False
    await eventually(answered)
    pipeline.close()


class Clock:
    """In place of the module ``time``."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


async def test_a_transfer_in_progress_is_not_given_up(store: LittleStore, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    for module in (command_pipeline, raw_connection_module):
        monkeypatch.setattr(module, "time", clock)
    connection = raw_connection(store.url)
    pipeline = CommandPipeline(connection, timeout=PATIENCE)
    waiting = await without_reply(store, pipeline)
    for part in (b"$9\r\n", b"one", b"two", b"all"):
        clock.now += 0.9 * PATIENCE
        store.connections[0].write(part)
        await eventually(lambda: connection.moved_at == clock.now, "bytes to arrive")
        pipeline._check_timeout()
        assert connection.is_open
    clock.now += 1.1 * PATIENCE
    pipeline._check_timeout()
    with pytest.raises(TimeoutError):
        await waiting
    pipeline.close()


async def test_a_connection_is_opened_once_for_all_and_all_are_told_when_that_fails(store: LittleStore) -> None:
    host, _, _ = store.url.rpartition(":")
    pipeline = CommandPipeline(raw_connection(f"{host}:1/0"), timeout=PATIENCE)
    results = await asyncio.gather(*(pipeline.execute("ECHO", "x") for _ in range(10)), return_exceptions=True)
    assert all(isinstance(result, ConnectionError) for result in results)
    assert len({id(result) for result in results}) == 1


async def test_a_store_that_is_no_master_any_more_is_left(store: LittleStore, pipeline: CommandPipeline) -> None:
    results = await asyncio.gather(pipeline.execute("WRITE"), pipeline.execute("QUEUED"), return_exceptions=True)
    assert [type(result) for result in results] == [ConnectionError, ConnectionError]
    assert await pipeline.execute("ECHO", "found") == b"found"
    assert len(store.connections) == 2


async def test_waiting_calls_fail_when_it_is_closed(store: LittleStore, pipeline: CommandPipeline) -> None:
    waiting = await without_reply(store, pipeline)
    pipeline.close()
    with pytest.raises(ConnectionError):
        await waiting


async def test_calls_that_wait_for_the_connection_fail_when_it_is_closed(store: LittleStore) -> None:
    store.silent = True
    pipeline = CommandPipeline(raw_connection(store.url), timeout=PATIENCE)
    waiting = asyncio.create_task(pipeline.execute("ECHO", "x"))
    await eventually(lambda: store.heard)
    pipeline.close()
    with pytest.raises(ConnectionError):
        await waiting
    # Or the thread that connects would wait for the store a little longer.
    store.connections[0].close()


async def test_a_store_that_says_what_it_was_not_asked_is_left(store: LittleStore, pipeline: CommandPipeline) -> None:
    assert await pipeline.execute("ECHO", "open") == b"open"
    store.connections[0].write(b"+unasked\r\n")
    await eventually(store.connections[0].is_closing)
    assert await pipeline.execute("ECHO", "again") == b"again"


async def test_the_client_tries_again_where_a_connection_broke(store: LittleStore) -> None:
    redis = connect(store.url)
    assert await command(redis, "HANG UP ONCE") == b"OK"
    assert store.heard.count([b"HANG", b"UP", b"ONCE"]) == 2
    with pytest.raises(ConnectionError):
        await command(redis, "HANG UP")
    await redis.aclose()


async def test_the_client_converts_replies_as_redis_py_does(store: LittleStore) -> None:
    redis = connect(store.url)
    assert await redis.set("name", "value") is True
    assert await redis.echo("text") == b"text"
    with pytest.raises(NoPermissionError):
        await command(redis, "REFUSE")
    await redis.aclose()


async def test_no_command_waits_for_the_transfer_of_a_large_one(store: LittleStore) -> None:
    client: Any = connect(store.url)
    large = b"x" * 10_000_000
    sending = asyncio.create_task(client.execute_command("ECHO", large))
    assert await client.execute_command("ECHO", "small") == b"small"
    assert await sending == large
    assert len(store.connections) == 2
    await client.aclose(close_connection_pool=True)
