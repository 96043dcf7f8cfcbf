"""Scripts with more arguments than Lua's stack holds, on a real store."""

import pytest
from arq.connections import ArqRedis

from shared.protocol.events import Delta, Finished, encode_event
from shared.protocol.queue import Emitter, JobQueue, Lease
from shared.redis import keys
from tests.support.emitting import emit, journal_of
from tests.support.jobs import REPLICA, enqueue


@pytest.fixture
def queue(redis: ArqRedis) -> JobQueue:
    return JobQueue(redis, "tiny", lease_ms=60_000)


async def test_any_number_of_events_is_published_at_once(queue: JobQueue, redis: ArqRedis) -> None:
    await enqueue(queue, "a", "b")
    claims, _ = await queue.claim("w1", used=0, slots=2)
    events = [encode_event(Delta(position, (7,), "x")) for position in range(10_000)]
    held = [Lease(claim.job, claim.attempt, REPLICA) for claim in claims]
    last = encode_event(Finished(10_000, "stop"))
    await emit(redis, Emitter("tiny", "w1"), {held[0]: [*events, last], held[1]: events}, ended={held[0]})
    assert await journal_of(queue, "a") == [*await journal_of(queue, "b"), Finished(10_000, "stop")]
    assert len(await journal_of(queue, "b")) == 10_000
    assert await redis.pttl(keys.journal("b")) > 60_000 >= await redis.pttl(keys.journal("a")) > 0


async def test_a_worker_may_have_any_number_of_slots(queue: JobQueue) -> None:
    names = {f"j{number}": number + 1 for number in range(10_000)}
    await queue.redis.mset({keys.payload(name): b"payload" for name in names})
    await queue.redis.zadd(keys.queue("tiny"), names)
    claims, left = await queue.claim("w1", used=0, slots=10_000)
    assert ([claim.job for claim in claims], left) == (list(names), 0)
