"""Shares of slots: a running job returns to the queue for a tenant that waits with fewer slots than its share."""

import itertools

import pytest
from arq.connections import ArqRedis

from shared.protocol.queue import EQUAL, JobQueue, Weights
from shared.protocol.request import ChatRequest, Job, Message, Tier
from shared.redis import keys
from tests.support.jobs import REPLICA
from tests.support.redis_types import awaitable


class Fleet:
    """One worker with four slots. The jobs of a tenant are its letter and a number."""

    def __init__(self, redis: ArqRedis) -> None:
        self.redis = redis
        self.queue = JobQueue(redis, "tiny", lease_ms=60_000)
        self._numbers = itertools.count(1)

    async def put(self, tenant: str, jobs: int = 1, *, weights: Weights = EQUAL, tier: Tier | None = None) -> None:
        request = ChatRequest(model="tiny", messages=(Message(role="user", content="x" * 400),), tier=tier)
        for _ in range(jobs):
            job = Job(id=f"{tenant}{next(self._numbers)}", reply_to=REPLICA, request=request, tenant=tenant)
            await self.queue.enqueue([job], limit=999, weights=weights)

    async def claim(self, used: int = 0, slots: int = 4, worker: str = "w1") -> list[str]:
        claims, _ = await self.queue.claim(worker, used=used, slots=slots)
        return [claim.job for claim in claims]

    async def yield_slot(self, *jobs: str) -> str | None:
        """What the worker must stop, a second after the last time."""
        fields = await awaitable(self.redis.hkeys(keys.fair_queue("tiny")))
        if times := [field for field in fields if field.startswith((b"yielded:", b"searched"))]:
            await awaitable(self.redis.hdel(keys.fair_queue("tiny"), *times))
        return await self.queue.yield_slot("w1", [(job, 1) for job in jobs])

    async def waiting(self) -> list[str]:
        return [job.decode() for job in await self.redis.zrange(keys.queue("tiny"), 0, -1)]


@pytest.fixture
def fleet(redis: ArqRedis) -> Fleet:
    return Fleet(redis)


async def test_a_tenant_with_all_slots_leaves_one_to_another_that_waits(fleet: Fleet) -> None:
    await fleet.put("a", 6)
    assert await fleet.claim() == ["a1", "a2", "a3", "a4"]
    await fleet.put("b")
    assert await fleet.yield_slot("a4") == "a4"
    assert await fleet.waiting() == ["b7", "a4", "a5", "a6"], "behind the tenant that waits, before its own jobs"
    assert await fleet.claim(used=3) == ["b7"]


async def test_slots_are_shared_until_shares_are_equal(fleet: Fleet) -> None:
    await fleet.put("a", 8)
    await fleet.claim()
    await fleet.put("b", 4)
    assert await fleet.yield_slot("a4") == "a4"
    assert await fleet.claim(used=3) == ["b9"]
    assert await fleet.yield_slot("a3") == "a3"
    assert await fleet.claim(used=3) == ["b10"]
    assert await fleet.yield_slot("a2") is None, "two slots for each"


async def test_a_job_that_waited_before_goes_first(fleet: Fleet) -> None:
    """A tenant whose tag is behind waiting jobs of the other one gets the slot nevertheless."""
    await fleet.put("b", 3)
    await fleet.claim(slots=3, worker="w2")
    await fleet.put("a", 6)
    await fleet.claim()
    for job in ("b1", "b2", "b3"):
        await fleet.queue.cancel([job])
    await fleet.queue.release("w2", [("b1", 1), ("b2", 1), ("b3", 1)])
    await fleet.put("b")
    await fleet.redis.zadd(keys.load("tiny"), {"w2": 1})
    assert await fleet.yield_slot("a4") == "a4"
    assert (await fleet.claim(used=3))[0].startswith("b")


@pytest.mark.parametrize("reason", ["alone", "free slot", "nobody waits", "only batch requests wait", "cancelled"])
async def test_otherwise_jobs_keep_their_slots(fleet: Fleet, reason: str) -> None:
    await fleet.put("a", 4)
    await fleet.claim()
    if reason != "nobody waits":
        tier: Tier | None = "batch" if reason == "only batch requests wait" else None
        await fleet.put("a" if reason == "alone" else "b", tier=tier)
    if reason == "free slot":
        await fleet.redis.zadd(keys.load("tiny"), {"w2": 0.5})
    if reason == "cancelled":
        await fleet.queue.cancel(["a4"])
    assert await fleet.yield_slot("a4") is None


async def test_one_slot_is_not_taken_from_a_tenant_for_another(fleet: Fleet) -> None:
    """With more tenants than slots, none has more than one, and those that wait wait for an end."""
    for tenant in "abcd":
        await fleet.put(tenant)
    await fleet.claim()
    await fleet.put("e")
    assert await fleet.yield_slot("a1", "b2", "c3", "d4") is None


async def test_weights_are_shares_of_slots(fleet: Fleet) -> None:
    await fleet.put("a", 8, weights=Weights(3))
    await fleet.claim()
    await fleet.put("b", 2)
    assert await fleet.yield_slot("a4") == "a4"
    await fleet.claim(used=3)
    assert await fleet.yield_slot("a3") is None, "a has three times the weight, and three slots"


async def test_the_tenant_furthest_above_its_share_leaves_a_slot(fleet: Fleet) -> None:
    await fleet.put("a", 5)
    await fleet.claim(slots=5)
    await fleet.put("c", 2)
    await fleet.claim(used=5, slots=7)
    await fleet.put("b")
    assert await fleet.yield_slot("c7", "a5") == "a5"


async def test_a_lower_class_takes_no_slot_of_a_higher_one(fleet: Fleet) -> None:
    await fleet.put("a", 4)
    await fleet.claim()
    await fleet.put("b", tier="flex")
    assert await fleet.yield_slot("a4") is None
    await fleet.put("c", tier="priority")
    assert await fleet.yield_slot("a4") == "a4"
    assert await fleet.claim(used=3) == ["c6"]


async def test_a_tenant_gets_one_slot_a_second(fleet: Fleet) -> None:
    await fleet.put("a", 4)
    await fleet.claim()
    await fleet.put("b", 2)
    assert await fleet.yield_slot("a4") == "a4"
    assert await fleet.queue.yield_slot("w1", [("a3", 1)]) is None
    assert await fleet.queue.yield_slot("w1", [("a4", 1)]) == "a4", "the reply to the first call was lost"
