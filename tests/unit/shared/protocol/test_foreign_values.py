"""What nobody of ours has written, among the queue's own keys: it costs the jobs concerned, and nobody else."""

import time
from typing import Any

import pytest
from arq.connections import ArqRedis

from shared.protocol.events import Delta, encode_event
from shared.protocol.queue import Emitter, JobQueue, Lease
from shared.protocol.request import ChatRequest, Job, Message
from shared.redis import keys
from tests.support.emitting import emit
from tests.support.redis_types import awaitable
from tests.support.wall_clock import WallClock

HOUR_MS = 3_600_000
LEASE_MS = 2_000
REPLICA = "api-1"
REQUEST = ChatRequest(model="tiny", messages=(Message(role="user", content="hello " * 400),))
EVENT = encode_event(Delta(0, (7,), "x"))


@pytest.fixture
def queue(redis: ArqRedis) -> JobQueue:
    return JobQueue(redis, "tiny", prefix_routing=True, lease_ms=LEASE_MS)


async def enqueue(queue: JobQueue, *names: str) -> None:
    for name in names:
        await queue.enqueue([Job(id=name, reply_to=REPLICA, request=REQUEST)], limit=100)


async def claim(queue: JobQueue, worker: str = "w1") -> list[str]:
    claims, _ = await queue.claim(worker, used=0, slots=8)
    return [one.job for one in claims]


def now_ms() -> float:
    return time.time() * 1000


async def lapse(redis: ArqRedis, *jobs: str) -> None:
    """Let the leases of jobs have ended just now."""
    await redis.zadd(keys.inflight("tiny"), dict.fromkeys(jobs, now_ms() - 1))


STRUCTURES = [keys.queue, keys.inflight, keys.load, keys.fair_queue, keys.prefixes, keys.reserved, keys.reaped]


@pytest.mark.parametrize("key", STRUCTURES, ids=lambda key: key("x"))
async def test_a_structure_of_another_type_is_replaced(queue: JobQueue, redis: ArqRedis, key: Any) -> None:
    async def spoil() -> None:
        await redis.delete(key("tiny"))
        await awaitable(redis.rpush(key("tiny"), "garbage"))

    await spoil()
    await enqueue(queue, "a")
    if key is not keys.queue:
        await spoil()
    assert await claim(queue) == ["a"]
    await spoil()
    await emit(redis, Emitter("tiny", "w1"), {Lease("a", 1, REPLICA): [EVENT]}, load=0.5)
    assert await queue.renew("w1", [("a", 1)]) == []
    await spoil()
    await queue.reap()
    await spoil()
    await queue.charge("", None, 10, job="a")
    await spoil()
    held = Lease("a", 1, REPLICA)
    await emit(redis, Emitter("tiny", "w1"), {held: [EVENT]}, ended={held}, load=0.0)
    await spoil()
    await queue.release("w1", [("a", 1)])
    await spoil()
    await queue.cancel(["a"])
    await enqueue(queue, "b")
    assert await claim(queue) == ["b"]


STATES = [
    {"attempt": "x"},
    {"attempt": "-9"},
    {"attempt": "9" * 18},
    {"lost_workers": "x"},
    {"crashes": "-1"},
    {"crashes": "nan"},
    {"lost_workers": "1e300"},
    "a string",
]


@pytest.mark.parametrize("state", STATES, ids=str)
async def test_a_waiting_job_with_garbage_for_its_state_goes_alone(
    queue: JobQueue, redis: ArqRedis, state: Any
) -> None:
    await enqueue(queue, "a", "bad", "b")
    if isinstance(state, dict):
        await awaitable(redis.hset(keys.state("bad"), mapping=state))
    else:
        await redis.set(keys.state("bad"), state)
    assert await claim(queue) == ["a", "b"]
    assert not await redis.exists(keys.payload("bad"), keys.state("bad"))
    assert await queue.depth() == (0, 2)


@pytest.mark.parametrize("key", [keys.payload, keys.journal], ids=lambda key: key("x"))
async def test_a_job_with_another_type_of_payload_or_journal_goes_alone(
    queue: JobQueue, redis: ArqRedis, key: Any
) -> None:
    await enqueue(queue, "a", "bad", "b")
    await awaitable(redis.hset(keys.state("bad"), mapping={"attempt": 1}))
    await redis.delete(key("bad"))
    await awaitable(redis.hset(key("bad"), "a", "hash"))
    assert await claim(queue) == ["a", "b"]
    assert await queue.depth() == (0, 2)


@pytest.mark.parametrize("state", ["a string", {"score": "x"}, {"score": "nan"}, {"lost_workers": "x"}], ids=str)
async def test_a_claimed_job_with_garbage_for_its_state_keeps_nobody_from_being_reaped(
    queue: JobQueue, redis: ArqRedis, state: Any
) -> None:
    await enqueue(queue, "a", "bad", "b")
    assert await claim(queue) == ["a", "bad", "b"]
    if isinstance(state, dict):
        await awaitable(redis.hset(keys.state("bad"), mapping=state))
    else:
        await redis.set(keys.state("bad"), state)
    await lapse(redis, "bad", "a", "b")
    await queue.reap()
    again = await claim(queue, "w2")
    assert {"a", "b"} <= set(again)


async def test_a_claimed_job_with_garbage_for_its_state_keeps_nobody_from_publishing(
    queue: JobQueue, redis: ArqRedis
) -> None:
    await enqueue(queue, "a", "bad")
    assert await claim(queue) == ["a", "bad"]
    await redis.set(keys.state("bad"), "a string")
    good, bad = Lease("a", 1, REPLICA), Lease("bad", 1, REPLICA)
    await emit(redis, Emitter("tiny", "w1"), {good: [EVENT], bad: [EVENT]})
    assert await queue.renew("w1", [("bad", 1), ("a", 1)]) == []
    assert await queue.cancel(["bad"]) == {"bad"}
    assert await queue.release("w1", [("bad", 1), ("a", 1)]) == 1
    assert not await redis.exists(keys.payload("bad"), keys.state("bad"))


async def test_a_journal_of_another_type_keeps_nobody_from_publishing(queue: JobQueue, redis: ArqRedis) -> None:
    await enqueue(queue, "a", "bad")
    assert await claim(queue) == ["a", "bad"]
    await redis.set(keys.journal("bad"), "a string")
    held = [Lease(name, 1, REPLICA) for name in ("bad", "a")]
    await emit(redis, Emitter("tiny", "w1"), {held[0]: [EVENT], held[1]: [EVENT]})
    await emit(redis, Emitter("tiny", "w1"), {held[0]: [EVENT, EVENT], held[1]: [EVENT]}, ended=set(held))
    assert len(await queue.journal("a")) == 2


@pytest.mark.parametrize("name", [b"\xff\xfe", b"", b"garbage", b"\xff:1"])
async def test_a_garbage_id_in_the_queue_goes_alone(queue: JobQueue, redis: ArqRedis, name: bytes) -> None:
    await redis.set(keys.PAYLOAD_PREFIX.encode() + name, b"payload")
    await redis.zadd(keys.queue("tiny"), {name: 1})
    await redis.zadd(keys.inflight("tiny"), {b"\xff": 1, b"nobody": 1})
    await redis.zadd(keys.reserved("tiny"), {b"garbage": now_ms() + 50, b"\xff": now_ms() + 50})
    await enqueue(queue, "a")
    await queue.reap()
    jobs = await claim(queue)
    assert "a" in jobs
    assert await redis.zscore(keys.inflight("tiny"), b"\xff\xfe") is None


@pytest.mark.parametrize("tag", ["x", "", "nan", "inf", "-inf", "-5", "1e300", "0x10"])
async def test_garbage_among_the_shares_keeps_nobody_from_queueing(queue: JobQueue, redis: ArqRedis, tag: str) -> None:
    await awaitable(redis.hset(keys.fair_queue("tiny"), mapping={"time:-2": tag, "finish:-2:": tag}))
    await enqueue(queue, "a")
    await queue.charge("", None, 10, job="a")
    await enqueue(queue, "b")
    assert await claim(queue) == ["a", "b"]


@pytest.mark.parametrize("reaped", ["x", "", "nan", "1e300", "-1"])
async def test_garbage_for_the_time_of_the_last_look_keeps_nobody_from_being_reaped(
    queue: JobQueue, redis: ArqRedis, reaped: str
) -> None:
    await enqueue(queue, "a")
    assert await claim(queue) == ["a"]
    await lapse(redis, "a")
    await redis.set(keys.reaped("tiny"), reaped)
    back, _ = await queue.reap()
    if not back:  # taken for an outage of the store, after which a lease holds once more
        await lapse(redis, "a")
        back, _ = await queue.reap()
    assert back == ["a"]


@pytest.mark.parametrize(("fraction", "wait"), [(0.0, 2.0), (0.0004, 2.0), (0.0006, 2.001)])
async def test_a_lease_of_a_clock_that_was_set_back_ends_after_one_lease(
    queue: JobQueue, wall_clock: WallClock, fraction: float, wait: float
) -> None:
    wall_clock.advance(3600)
    await enqueue(queue, "a")
    assert await claim(queue) == ["a"]
    # Ends of leases are whole milliseconds, and so are waits for them, rounded up.
    wall_clock.advance(fraction - 3600)
    assert await queue.reap() == ([], wait)
    for _ in range(2):
        wall_clock.advance(wait / 3)
        assert (await queue.reap())[0] == []
    wall_clock.advance(wait / 3)
    assert await queue.reap() == (["a"], None)


async def test_nothing_is_kept_for_longer_because_a_clock_was_set_back(queue: JobQueue, redis: ArqRedis) -> None:
    await enqueue(queue, "a")
    await redis.zadd(keys.reserved("tiny"), {"a dead-worker": now_ms() + HOUR_MS})
    assert await claim(queue) == ["a"]
