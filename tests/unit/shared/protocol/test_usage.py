"""What jobs use is counted with their ends, by key, kind, model and day."""

from collections.abc import Awaitable, Callable

import pytest
from arq.connections import ArqRedis

from shared.protocol.errors import Problem, ProblemKind
from shared.protocol.events import Delta, Event, Failed, Finished, PromptLogprobs, Started, encode_event
from shared.protocol.queue import Claim, Emitter, JobQueue, Lease, StaleClaims, bookings
from shared.protocol.request import ChatRequest, Job, Message, Tier
from shared.protocol.usage import DAY, UsageCounts
from shared.redis import keys
from shared.redis.clock import store_time
from tests.support.emitting import emit
from tests.support.jobs import REPLICA
from tests.support.redis_types import awaitable

END = encode_event(Finished(3, "stop"))
USED = UsageCounts(requests=1, prompt_tokens=10, cached_tokens=4, completion_tokens=3, engine_ms=250)


async def usage(redis: ArqRedis) -> dict[str, UsageCounts]:
    """What is counted today."""
    await JobQueue(redis, "tiny").book()
    today = int(await store_time(redis)) // DAY
    stored = await awaitable(redis.hgetall(keys.usage(str(today))))
    return {name.decode(): UsageCounts.decode(counts) for name, counts in stored.items()}


async def claimed(redis: ArqRedis, name: str, tenant: str = "", tier: Tier | None = None, *, team: str = "") -> Lease:
    request = ChatRequest(model="tiny", messages=(Message(role="user", content="x"),), tier=tier)
    queue = JobQueue(redis, "tiny")
    await queue.enqueue([Job(id=name, reply_to=REPLICA, request=request, tenant=tenant, team=team)], limit=9)
    ((claim,), _) = await queue.claim("w1", used=0, slots=8)
    lease = Lease(claim.job, claim.attempt, REPLICA)
    lease.usage = USED.encode()
    return lease


async def end(redis: ArqRedis, *leases: Lease) -> None:
    await emit(redis, Emitter("tiny", "w1"), {lease: [END] for lease in leases}, ended=leases)


async def test_jobs_add_up_by_key_kind_and_model(redis: ArqRedis) -> None:
    both = [await claimed(redis, "a", "key-1"), await claimed(redis, "b", "key-1")]
    await end(redis, *both)
    await end(redis, await claimed(redis, "c", "key-1", "batch"), await claimed(redis, "d"))
    assert await usage(redis) == {"key-1 other tiny": USED + USED, "key-1 batch tiny": USED, " other tiny": USED}
    (key,) = await redis.keys(keys.usage("*"))
    assert 399 * DAY < await redis.ttl(key) <= 400 * DAY


async def test_an_attempt_that_has_lost_its_lease_counts_nothing(redis: ArqRedis) -> None:
    lost = await claimed(redis, "a", "key-1")
    await JobQueue(redis, "tiny").release("w1", [("a", 1)])
    with pytest.raises(StaleClaims):
        await end(redis, lost)
    ((again,), _) = await JobQueue(redis, "tiny").claim("w1", used=0, slots=8)
    lease = Lease(again.job, again.attempt, REPLICA)
    lease.usage = USED.encode()
    await end(redis, lease)
    assert await usage(redis) == {"key-1 other tiny": USED}


async def test_reasoning_counts_once_for_a_request(redis: ArqRedis) -> None:
    await end(redis, await claimed(redis, "a", "key-1"))
    for _ in range(2):
        await JobQueue(redis, "tiny").note_reasoning("key-1", None, 2, job="a")
    assert await usage(redis) == {"key-1 other tiny": USED + UsageCounts(reasoning_tokens=2)}


async def test_what_exceeds_the_bound_of_a_day_counts_together(
    redis: ArqRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bookings, "MOST_FIELDS", 2)
    for number, key in enumerate(("key-1", "key-2", "key-3", "key-4", "key-1")):
        await end(redis, await claimed(redis, str(number), key))
    counted = await usage(redis)
    assert counted == {"key-1 other tiny": USED + USED, "key-2 other tiny": USED, "* other *": USED + USED}


async def test_tokens_of_a_key_add_up_by_day_for_its_budgets(redis: ArqRedis) -> None:
    today = int(await store_time(redis)) // DAY
    await awaitable(redis.hset(keys.spent("key-1"), mapping={str(today - 1): "5", str(today - 32): "7"}))
    await end(redis, await claimed(redis, "a", "key-1"), await claimed(redis, "b", "key-1", "batch"))
    await end(redis, await claimed(redis, "c"))
    await JobQueue(redis, "tiny").book()
    assert await awaitable(redis.hgetall(keys.spent("key-1"))) == {
        str(today).encode(): b"26",
        str(today - 1).encode(): b"5",
    }
    assert 0 < await redis.ttl(keys.spent("key-1")) <= 32 * DAY
    assert await redis.keys(keys.spent("*")) == [keys.spent("key-1").encode()]


async def test_usage_of_a_key_counts_for_its_team_at_the_time(redis: ArqRedis) -> None:
    await end(redis, await claimed(redis, "a", "key-1", team="physics"), await claimed(redis, "b", "key-1"))
    assert await usage(redis) == {"key-1@physics other tiny": USED, "key-1 other tiny": USED}
    (spent,) = await awaitable(redis.hvals(keys.spent("key-1")))
    (spent_by_team,) = await awaitable(redis.hvals(keys.spent("team:physics")))
    assert (spent, spent_by_team) == (b"26", b"13")


async def test_what_is_noted_counts_once_whoever_counts_it(redis: ArqRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    """One process stops before it has deleted what it has counted, another counts an older part."""
    await end(redis, await claimed(redis, "a", "key-1"))
    first = await redis.xrange(keys.ended("tiny"))
    await end(redis, await claimed(redis, "b", "key-1"))
    queue = JobQueue(redis, "tiny")

    async def fail(*_: object) -> None:
        raise ConnectionError("killed")

    with monkeypatch.context() as killed:
        killed.setattr(redis, "xdel", fail)
        with pytest.raises(ConnectionError):
            await queue.book()
    late = bookings.Bookings("tiny")
    ((entry, _),) = first
    late.add(entry, "key-1 other", USED)
    for names, arguments in late.calls():
        await redis.register_script(bookings.BOOK)(names, arguments)
    assert await usage(redis) == {"key-1 other tiny": USED + USED}
    assert await awaitable(redis.hvals(keys.spent("key-1"))) == [b"26"]
    assert await redis.xlen(keys.ended("tiny")) == 0


async def test_who_reaps_counts_and_an_unreadable_note_stops_nobody(redis: ArqRedis) -> None:
    await redis.xadd(keys.ended("tiny"), {"key-1 other": "x"})
    await end(redis, await claimed(redis, "a", "key-1"))
    await JobQueue(redis, "tiny").reap()
    assert await redis.xlen(keys.ended("tiny")) == 0
    assert await usage(redis) == {"key-1 other tiny": USED}


STARTED = Started(worker="w" * 64, prompt_tokens=70_000, fingerprint="f" * 40, cached_tokens=300)
SERVED = (
    STARTED,
    PromptLogprobs((1, b"\xff"), (), ()),
    Delta(0, (7, 8, 70_000), "abc"),
    Delta(3, (9,), "", (0.5,)),
    STARTED,
)
"""What one worker has published of a job, and the next one before its first token."""

Ender = Callable[[JobQueue], Awaitable[object]]


async def cancelled_while_it_waits(queue: JobQueue) -> None:
    await queue.release("w1", [("a", 1)])
    await queue.cancel(["a"])


async def cancelled_before_it_was_released(queue: JobQueue) -> None:
    await queue.cancel(["a"])
    await queue.release("w1", [("a", 1)])


async def cancelled_before_its_worker_was_lost(queue: JobQueue) -> None:
    await queue.cancel(["a"])
    await queue.redis.zadd(keys.inflight("tiny"), {"a": 1})
    for _ in range(2):  # The first one cannot tell a lost worker from an outage of the store.
        await queue.reap()
        await queue.redis.zadd(keys.inflight("tiny"), {"a": 1}, xx=True)


async def moved_to_the_dead_letters(queue: JobQueue) -> None:
    event = encode_event(Failed(Problem(kind=ProblemKind.INTERNAL, message="")))
    await queue.move_to_dead_letters("w1", Claim("a", 1, b""), event)


async def expired(queue: JobQueue) -> None:
    await queue.release("w1", [("a", 1)])
    await queue.redis.delete(keys.payload("a"))
    await queue.claim("w1", used=0, slots=8)


@pytest.mark.parametrize("published", [SERVED, ()], ids=["served", "not served"])
@pytest.mark.parametrize(
    "ender",
    [
        cancelled_while_it_waits,
        cancelled_before_it_was_released,
        cancelled_before_its_worker_was_lost,
        moved_to_the_dead_letters,
        expired,
    ],
)
async def test_what_was_published_counts_where_no_worker_ends_the_job(
    redis: ArqRedis, ender: Ender, published: tuple[Event, ...]
) -> None:
    lease, tag = await claimed(redis, "a", "key-1"), await finish_tag(redis)
    for event in published:
        await emit(redis, Emitter("tiny", "w1"), {lease: [encode_event(event)]})
    queue, failed = JobQueue(redis, "tiny"), int(ender is moved_to_the_dead_letters)
    await ender(queue)
    await queue.cancel(["a"])  # Once.
    used = UsageCounts(requests=1, prompt_tokens=70_000, cached_tokens=300, completion_tokens=4)
    if not published:
        used = UsageCounts(requests=failed)
    used += UsageCounts(errors=failed)
    assert await usage(redis) == ({"key-1 other tiny": used} if used != UsageCounts() else {})
    assert await finish_tag(redis) == (tag if published else 1), "alone, it pays no more than was estimated"
    assert await queue.depth() == (0, 0)
    assert not await redis.exists(keys.sizes("tiny"))


async def finish_tag(redis: ArqRedis) -> int:
    return int(await awaitable(redis.hget(keys.fair_queue("tiny"), "finish:-2:key-1")) or 0)


async def test_an_unreadable_journal_ends_a_job_nevertheless(redis: ArqRedis) -> None:
    await claimed(redis, "a", "key-1")
    await awaitable(redis.rpush(keys.journal("a"), b"", b"\xc1", b"\x93\x03\xcd"))
    await JobQueue(redis, "tiny").release("w1", [("a", 1)])
    await JobQueue(redis, "tiny").cancel(["a"])
    assert await usage(redis) == {"key-1 other tiny": UsageCounts(requests=1)}


async def test_the_prompt_of_several_choices_counts_with_the_first(redis: ArqRedis) -> None:
    request = ChatRequest(model="tiny", messages=(Message(role="user", content="x"),))
    queue, names = JobQueue(redis, "tiny"), [f"{prompt}:{choice}" for prompt in "pq" for choice in range(2)]
    jobs = [Job(id=name, reply_to=REPLICA, request=request, is_first=name == "p:0") for name in names]
    await queue.enqueue(jobs, limit=9)
    await queue.claim("w1", used=0, slots=8)
    for name in names:
        await awaitable(redis.rpush(keys.journal(name), *(encode_event(event) for event in SERVED)))
    await queue.release("w1", [(name, 1) for name in names])
    await queue.cancel(names)
    used = UsageCounts(requests=1, prompt_tokens=140_000, cached_tokens=600, completion_tokens=16)
    assert await usage(redis) == {" other tiny": used}
