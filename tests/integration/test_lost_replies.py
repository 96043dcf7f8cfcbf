"""A connection to the store that is cut after a command was executed, and before its reply: nothing is counted, placed
or refused twice, whichever command it was. That other scripts bear a repetition: test_repeated_scripts.py."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest
from arq.connections import ArqRedis

from shared.protocol.events import Delta, Finished, encode_event
from shared.protocol.queue import Emitter, JobQueue, QueueFull
from shared.redis import keys
from shared.redis.client import connect, raw_connection
from shared.redis.reconnections import Reconnections
from tests.support.emitting import journal_of
from tests.support.fleet import free_port
from tests.support.job_rig import ActiveJobs, Attempt, Publisher, read_payload
from tests.support.jobs import WORKER, job
from tests.support.lossy_proxy import LossyProxy
from tests.support.store import Store
from worker.engine.handle import CurrentEngine

Facts = list[object]


async def a_full_queue(redis: ArqRedis, _: str) -> Facts:
    queue = JobQueue(redis, WORKER.model)
    facts: Facts = [await queue.enqueue([job("a"), job("b")], limit=2)]
    with pytest.raises(QueueFull):
        await queue.enqueue([job("c")], limit=2)
    facts += [await queue.place("a"), await queue.place("b"), await queue.depth()]
    await queue.note_reasoning("key-1", None, 5, job="a")
    await queue.note_reasoning("key-1", None, 5, job="a")
    facts.append(await redis.xlen(keys.ended(WORKER.model)))
    facts += [await queue.cancel(["a"]), await queue.depth()]
    return facts


async def a_stream(redis: ArqRedis, url: str) -> Facts:
    queue = JobQueue(redis, WORKER.model)
    await queue.enqueue([job("a")], limit=1, max_bytes=1000)
    while not (claims := (await queue.claim("w1", used=0, slots=1))[0]):
        # The reply to the first claim was lost.
        await redis.zadd(keys.inflight(WORKER.model), {"a": 1}, xx=True)
        await queue.reap()
    publisher = Publisher(
        Emitter(WORKER.model, "w1"), raw_connection(url), ActiveJobs(), CurrentEngine(slots=1), Reconnections()
    )
    attempt = Attempt(claims[0], read_payload(claims[0]), 1, cast("asyncio.Task[None]", None))
    running = asyncio.create_task(publisher.run())
    for position in range(3):
        publisher.add(attempt.lease, encode_event(Delta(position, (position,), str(position))))
        await publisher.flushed()
    publisher.end(attempt, Finished(3, "stop"))
    await publisher.flushed()
    running.cancel()
    # Readers skip events that they have, by their position.
    journal = await journal_of(queue, "a")
    return [dict.fromkeys(journal), await queue.depth(), await redis.exists(keys.payload("a"), keys.state("a"))]


@pytest.fixture
async def proxy(tmp_path: Path) -> AsyncIterator[LossyProxy]:
    store = Store(tmp_path, free_port())
    store.start()
    proxy = LossyProxy(store.port)
    async with proxy.running():
        yield proxy
    store.kill()


@pytest.mark.parametrize("scenario", [a_full_queue, a_stream], ids=lambda scenario: scenario.__name__)
async def test_a_lost_reply_changes_nothing(
    proxy: LossyProxy, scenario: Callable[[ArqRedis, str], Awaitable[Facts]]
) -> None:
    async def run(lost: int | None) -> Facts:
        redis = connect(proxy.url)
        proxy.lost = None
        await redis.flushall()
        proxy.commands, proxy.lost = 0, lost
        try:
            return await scenario(redis, proxy.url)
        finally:
            await redis.aclose(close_connection_pool=True)

    await run(None)  # loads the scripts
    expected = await run(None)
    for command in range(proxy.commands):
        assert await run(command) == expected, f"the reply to command {command} was lost"
