"""What jobs use is counted with their ends, by key, kind, model and day."""

import pytest
from arq.connections import ArqRedis

from shared.protocol.events import Finished, encode_event
from shared.protocol.queue import Emitter, JobQueue, Lease, StaleClaims, bookings
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
        await JobQueue(redis, "tiny").charge("key-1", None, 0, job="a", used=UsageCounts(reasoning_tokens=2))
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
