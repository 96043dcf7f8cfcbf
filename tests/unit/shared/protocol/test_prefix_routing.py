"""Prefix routing: prompts with a shared prefix go to the same worker if its load allows, and no job is left waiting."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest
from arq.connections import ArqRedis
from fakeredis import FakeAsyncRedis

from shared.protocol.queue import Claim, JobQueue
from shared.protocol.request import ChatRequest, Job, Message, Tier
from shared.redis import keys
from shared.runtime.tasks import cancel_all
from tests.support.eventually import PATIENCE
from tests.support.job_rig import consumer_of
from tests.support.jobs import WORKER
from tests.support.redis_types import awaitable
from worker.jobs.consumer import JobConsumer

WORKERS = ("w1", "w2", "w3")


@pytest.fixture
async def redis() -> AsyncIterator[ArqRedis]:
    """With the workers' subscriptions, as nobody else is sent a job."""
    fake = FakeAsyncRedis()
    client = ArqRedis(pool_or_conn=fake.connection_pool, job_deserializer=msgspec.msgpack.decode)
    async with client.pubsub() as pubsub:
        await pubsub.subscribe(*map(keys.worker_channel, WORKERS))
        for _ in WORKERS:
            await pubsub.get_message(timeout=PATIENCE)
        yield client
    await fake.aclose()


@pytest.fixture
async def queue(redis: ArqRedis) -> JobQueue:
    queue = JobQueue(redis, "tiny", prefix_routing=True, reserved_ms=3_600_000, lease_ms=60_000)
    await idle(queue)
    return queue


async def idle(queue: JobQueue, **loads: float) -> None:
    """Set the loads; where none is given, next to none, and less for the first worker than for the second."""
    await queue.redis.zadd(keys.load("tiny"), {"w1": 0.0, "w2": 0.01, "w3": 0.02, **loads})


def job(name: str, beginning: str, *, tier: Tier | None = None) -> Job:
    messages = (Message(role="system", content=beginning * 2000), Message(role="user", content=f"{name}?"))
    return Job(id=name, reply_to="api-1", request=ChatRequest(model="tiny", messages=messages, tier=tier))


async def put(queue: JobQueue, name: str, beginning: str, *, tier: Tier | None = None) -> str | None:
    """Queue a job; return the worker that it is kept for."""
    await queue.enqueue([job(name, beginning, tier=tier)], limit=1000)
    entries: list[bytes] = await queue.redis.zrange(keys.reserved("tiny"), 0, -1)
    for entry in entries:
        kept, _, worker = entry.decode().partition(" ")
        if kept == name:
            return worker
    return None


async def end_reservations(queue: JobQueue) -> None:
    """Let the time end for which jobs are kept."""
    entries = await queue.redis.zrange(keys.reserved("tiny"), 0, -1)
    if entries:
        await queue.redis.zadd(keys.reserved("tiny"), dict.fromkeys(entries, 1.0))


async def take(queue: JobQueue, worker: str, *, used: int = 0, slots: int = 8) -> list[str]:
    claims, _ = await queue.claim(worker, used=used, slots=slots)
    return [claim.job for claim in claims]


async def test_a_beginning_is_followed_and_a_new_one_goes_to_the_least_loaded(queue: JobQueue) -> None:
    await idle(queue, w1=0.2, w2=0.1, w3=0.15)
    assert await put(queue, "a1", "a") == "w2"
    await idle(queue, w1=0.1, w2=0.25, w3=0.15)
    assert await put(queue, "b1", "b") == "w1"
    await idle(queue, w1=0.15, w2=0.25, w3=0.1)
    assert await put(queue, "a2", "a") == "w2"
    assert await put(queue, "b2", "b") == "w1"
    assert queue.routed == Counter(new=2, followed=2)


async def test_several_of_a_new_beginning_go_to_one_worker(queue: JobQueue) -> None:
    assert {await put(queue, f"a{number}", "a") for number in range(4)} == {"w1"}
    assert await take(queue, "w2") == []
    assert await take(queue, "w1") == ["a0", "a1", "a2", "a3"]


async def test_choices_of_one_request_go_together(queue: JobQueue) -> None:
    first = job("a1", "a")
    await queue.enqueue([first, msgspec.structs.replace(first, id="a2", choice=1)], limit=10)
    assert queue.routed == Counter(new=1, followed=1)
    assert await take(queue, "w1") == ["a1", "a2"]


async def test_a_holder_that_is_much_busier_than_another_is_not_followed(queue: JobQueue) -> None:
    await put(queue, "a1", "a")
    await idle(queue, w1=0.5, w2=0.3, w3=0.1)
    assert await put(queue, "a2", "a") == "w3"
    assert queue.routed == Counter(new=1, diverted=1)
    # Both have it now, and the less loaded one is asked.
    await idle(queue, w1=0.2, w2=0.0, w3=0.3)
    assert await put(queue, "a3", "a") == "w1"


async def test_among_busy_workers_the_factor_counts(queue: JobQueue) -> None:
    await put(queue, "a1", "a")
    await idle(queue, w1=0.9, w2=0.62, w3=0.62)
    assert await put(queue, "a2", "a") == "w1"


async def test_the_longest_beginning_decides_and_a_shorter_one_helps_where_the_load_forbids_it(queue: JobQueue) -> None:
    assert await put(queue, "short", "a") == "w1"
    messages = (Message(role="system", content="a" * 2000 + "b" * 8000),)
    request = ChatRequest(model="tiny", messages=messages)
    await idle(queue, w1=0.5, w2=0.1, w3=0.2)
    await queue.enqueue([Job(id="whole", reply_to="api-1", request=request)], limit=10)
    assert await take(queue, "w2") == ["whole"]
    await idle(queue, w1=0.1, w2=0.2, w3=0.0)
    await queue.enqueue([Job(id="again", reply_to="api-1", request=request)], limit=10)
    assert "again" in await take(queue, "w2")
    await idle(queue, w1=0.1, w2=0.9, w3=0.0)
    await queue.enqueue([Job(id="shorter", reply_to="api-1", request=request)], limit=10)
    assert "shorter" in await take(queue, "w1")


async def test_a_worker_without_a_prefix_cache_is_not_followed(redis: ArqRedis, queue: JobQueue) -> None:
    await queue.renew("w1", info=msgspec.structs.replace(WORKER, prefix_caching=False))
    assert await put(queue, "a1", "a") == "w1"
    await idle(queue, w2=0.0, w1=0.1)
    assert await put(queue, "a2", "a") == "w2"
    await idle(queue, w1=0.0, w2=0.1)
    assert await put(queue, "a3", "a") == "w2"
    assert queue.routed == Counter(new=2, followed=1)


async def test_a_holder_that_has_gone_is_not_waited_for(redis: ArqRedis, queue: JobQueue) -> None:
    await redis.zadd(keys.load("tiny"), {"dead": 0.0, "w1": 0.1, "w2": 0.11, "w3": 0.12})
    async with redis.pubsub() as pubsub:
        await pubsub.subscribe(keys.worker_channel("dead"))
        await pubsub.get_message(timeout=PATIENCE)
        assert await put(queue, "a1", "a") == "dead"
        await pubsub.unsubscribe()
        await pubsub.get_message(timeout=PATIENCE)
    assert await put(queue, "a2", "a") == "w1"
    assert await redis.zscore(keys.load("tiny"), "dead") is None
    await queue.withdraw("w1")
    assert await put(queue, "a3", "a") in {"w2", "w3"}


async def test_a_registered_worker_without_a_subscription_counts_as_full_until_it_reports(
    redis: ArqRedis, queue: JobQueue
) -> None:
    await queue.renew("away", info=WORKER)
    await redis.zadd(keys.load("tiny"), {"away": 0.0, "w1": 0.1, "w2": 0.11, "w3": 0.12})
    assert await put(queue, "a1", "a") == "w1"
    assert await redis.zscore(keys.load("tiny"), "away") == 1


async def test_a_reserved_job_is_anybodys_after_its_time(queue: JobQueue) -> None:
    assert await put(queue, "a1", "a") == "w1"
    assert await queue.claim("w2", used=0, slots=8) == ([], 1)
    await end_reservations(queue)
    assert await take(queue, "w2") == ["a1"]


async def test_others_jobs_are_taken_past_a_reserved_one_in_their_order(queue: JobQueue) -> None:
    assert await put(queue, "kept", "a", tier="priority") == "w1"
    request = ChatRequest(model="tiny", messages=(Message(role="user", content="hello"),))
    for name, tier in (("second", "default"), ("third", "flex"), ("first", "priority")):
        plain = Job(id=name, reply_to="api-1", request=msgspec.structs.replace(request, tier=tier))
        await queue.enqueue([plain], limit=10)
    await idle(queue, w1=1.0, w3=1.0)
    assert await take(queue, "w2") == ["first", "second", "third"]
    assert await take(queue, "w1") == ["kept"]


async def test_a_worker_that_fills_up_gives_back_what_is_reserved_for_it(redis: ArqRedis, queue: JobQueue) -> None:
    assert {await put(queue, f"a{number}", "a") for number in range(4)} == {"w1"}
    async with redis.pubsub(ignore_subscribe_messages=True) as pubsub:
        await pubsub.subscribe(keys.worker_channel("w2"))
        await pubsub.get_message(timeout=PATIENCE)
        assert await take(queue, "w1", used=1, slots=4) == ["a0", "a1", "a2"]
        message = await pubsub.get_message(timeout=PATIENCE)
    assert message is not None
    assert message["data"] == b"wake"
    assert await take(queue, "w2") == ["a3"]


async def test_a_full_worker_that_was_woken_in_error_gives_back_too(queue: JobQueue) -> None:
    assert await put(queue, "a1", "a") == "w1"
    assert await take(queue, "w1", used=8, slots=8) == []
    assert await take(queue, "w2") == ["a1"]


async def test_where_nobody_has_a_free_slot_the_first_who_has_takes_it(queue: JobQueue) -> None:
    await idle(queue, w1=1.0, w2=1.0, w3=1.0)
    assert await put(queue, "a1", "a") is None
    assert queue.routed == Counter(waited=1)
    assert await take(queue, "w3") == ["a1"]


async def test_a_cancelled_job_is_not_claimed_by_the_worker_that_it_was_reserved_for(queue: JobQueue) -> None:
    await put(queue, "a1", "a")
    assert await queue.cancel(["a1"]) == frozenset()
    assert await take(queue, "w1") == []
    assert await put(queue, "a2", "a") == "w1"
    assert await take(queue, "w2") == []
    assert await take(queue, "w1") == ["a2"]


async def test_every_job_is_claimed_once_whatever_is_reserved_for_whom(queue: JobQueue) -> None:
    names = [f"{beginning}{number}" for number in range(12) for beginning in "abc"]
    for name in names:
        await put(queue, name, name[0])
    seen: list[str] = []
    for _ in range(3):
        for worker in WORKERS:
            seen += await take(queue, worker, slots=6)
    await end_reservations(queue)
    for worker in WORKERS:
        seen += await take(queue, worker, slots=100)
    assert sorted(seen) == sorted(names)
    assert await queue.redis.exists(keys.reserved("tiny")) == 0


async def test_what_is_remembered_is_bounded_and_goes_by_itself(redis: ArqRedis, queue: JobQueue) -> None:
    for number in range(30):
        await put(queue, f"j{number}", chr(0x4E00 + number))
        await idle(queue)
    assert await awaitable(redis.hlen(keys.prefixes("tiny"))) <= 65_536
    assert await redis.pttl(keys.prefixes("tiny")) > 0
    for worker in WORKERS:
        await idle(queue, **{other: 0.9 for other in WORKERS if other != worker})
        await put(queue, f"for-{worker}", "a")
    entries = await awaitable(redis.hvals(keys.prefixes("tiny")))
    assert max(entry.count(b"\n") for entry in entries) == len(WORKERS)
    assert all(entry.split(b"\n").count(b"w1") <= 1 for entry in entries)


async def test_short_prompts_leave_no_trace(redis: ArqRedis, queue: JobQueue) -> None:
    request = ChatRequest(model="tiny", messages=(Message(role="user", content="hello"),))
    await queue.enqueue([Job(id="a", reply_to="api-1", request=request)], limit=10)
    assert await redis.exists(keys.prefixes("tiny"), keys.reserved("tiny")) == 0
    assert not queue.routed


async def test_it_can_be_switched_off(redis: ArqRedis) -> None:
    queue = JobQueue(redis, "tiny", lease_ms=60_000)
    await idle(queue)
    assert await put(queue, "a1", "a") is None
    assert await take(queue, "w3") == ["a1"]


@asynccontextmanager
async def consuming(
    queue: JobQueue, worker: str, serve: Callable[[Claim, Job], Awaitable[None]], *, slots: int
) -> AsyncIterator[JobConsumer]:
    """A worker's consumer at work; it looks at the queue only when it is woken, or has reason to."""
    consumer = consumer_of(queue, serve, worker=worker, slots=slots)
    running = asyncio.create_task(consumer.run())
    yield consumer
    await cancel_all({running})
    await consumer.stop()


async def test_who_passed_over_a_reserved_job_looks_again_when_it_is_free(queue: JobQueue) -> None:
    served: asyncio.Queue[str] = asyncio.Queue()

    async def serve(claim: Claim, job: Job) -> None:
        served.put_nowait(job.id)

    async with consuming(queue, "w2", serve, slots=4) as consumer:
        # The worker for which it is kept listens, but does nothing.
        assert await put(queue, "a1", "a") == "w1"
        consumer.wake()
        await asyncio.sleep(0.05)
        assert served.empty()
        await end_reservations(queue)
        async with asyncio.timeout(PATIENCE):
            assert await served.get() == "a1"


async def test_a_full_worker_that_is_woken_has_others_woken_instead(redis: ArqRedis, queue: JobQueue) -> None:
    began = asyncio.Event()

    async def serve(claim: Claim, job: Job) -> None:
        began.set()
        await asyncio.Event().wait()

    # Queued before the worker looks for the first time: a second look would report its load once more.
    await put(queue, "a1", "a")
    async with consuming(queue, "w1", serve, slots=1) as consumer:
        async with asyncio.timeout(PATIENCE):
            await began.wait()
        # Its reported load is too low, as when a response has just ended while it claimed another job.
        await idle(queue)
        assert await put(queue, "a2", "a") == "w1"
        async with redis.pubsub(ignore_subscribe_messages=True) as pubsub:
            await pubsub.subscribe(keys.worker_channel("w2"), keys.worker_channel("w3"))
            consumer.wake()
            while (message := await pubsub.get_message(timeout=PATIENCE)) is None:
                pass
        assert message["data"] == b"wake"
