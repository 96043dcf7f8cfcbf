"""Shares of slots: a running job returns to the queue for a tenant that waits with fewer slots than its share."""

import itertools
from typing import Any

import pytest
from arq.connections import ArqRedis

from shared.protocol.queue import EQUAL, JobQueue, Weights
from shared.protocol.request import ChatRequest, Constraint, Image, Job, Message, PromptScoring, Sampling, Tier, Tool
from shared.redis import keys
from tests.support.jobs import REPLICA
from tests.support.redis_types import awaitable


class Fleet:
    """One worker with four slots. The jobs of a tenant are its letter and a number; those that keep their slots have a
    letter with a seed."""

    def __init__(self, redis: ArqRedis) -> None:
        self.redis = redis
        self.queue = JobQueue(redis, "tiny", lease_ms=60_000)
        self._numbers = itertools.count(1)
        self.kept: dict[str, str] = {}
        """The tenant of each running job that keeps its slot."""

    async def put(
        self,
        tenant: str,
        jobs: int = 1,
        *,
        weights: Weights = EQUAL,
        tier: Tier | None = None,
        seed: int | None = None,
        **fields: Any,
    ) -> None:
        message = Message(role="user", content="x" * 400)
        fields = {"model": "tiny", "messages": (message,), "tier": tier, "sampling": Sampling(seed=seed), **fields}
        request = ChatRequest(**fields)
        for _ in range(jobs):
            job = Job(id=f"{tenant}{next(self._numbers)}", reply_to=REPLICA, request=request, tenant=tenant)
            await self.queue.enqueue([job], limit=999, weights=weights)

    async def claim(self, used: int = 0, slots: int = 4, worker: str = "w1") -> list[str]:
        claims, self.waiting_claimable = await self.queue.claim(
            worker, used=used, slots=slots, keepers=self.kept.values()
        )
        self.kept |= {claim.job: claim.keeper for claim in claims if claim.keeper}
        return [claim.job for claim in claims]

    async def yield_slot(self, *jobs: str) -> str | None:
        """What the worker must stop, a second after the last time."""
        fields = await awaitable(self.redis.hkeys(keys.fair_queue("tiny")))
        if times := [field for field in fields if field.startswith((b"yielded:", b"searched"))]:
            await awaitable(self.redis.hdel(keys.fair_queue("tiny"), *times))
        return await self.queue.yield_slot("w1", [(job, 1) for job in jobs], slots=4, keepers=self.kept.values())

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
    assert await fleet.queue.yield_slot("w1", [("a3", 1)], slots=4) is None
    assert await fleet.queue.yield_slot("w1", [("a4", 1)], slots=4) == "a4", "the reply to the first call was lost"


@pytest.mark.parametrize(
    "fields",
    [
        {"seed": 1},
        {"constraint": Constraint(kind="regex", value="a")},
        {"tools": (Tool(name="f"),)},
        {"messages": (Message(role="user", images=(Image(digest="x"),)),)},
        *(
            {"sampling": sampling}
            for sampling in (
                Sampling(beams=2),
                Sampling(prompt_scoring=PromptScoring()),
                Sampling(frequency_penalty=0.1),
                Sampling(presence_penalty=0.1),
            )
        ),
    ],
    ids=lambda fields: " ".join(fields) + str(fields.get("sampling", ""))[9:20],
)
async def test_a_tenant_keeps_at_most_half_of_the_slots_beside_another(fleet: Fleet, fields: dict[str, Any]) -> None:
    await fleet.put("b")
    assert await fleet.claim() == ["b1"]
    await fleet.put("a", 6, **fields)
    assert await fleet.claim(used=0) == ["a2", "a3"]
    assert fleet.waiting_claimable == 0, "there is nothing to claim again for, until a slot is free"
    assert await fleet.claim(used=2) == []
    await fleet.put("b", 2)
    assert await fleet.claim(used=2) == ["b8", "b9"], "behind jobs that wait for a slot that their tenant may keep"
    del fleet.kept["a2"]
    assert await fleet.claim(used=3) == ["a4"]
    assert len(fleet.kept) == 2


@pytest.mark.parametrize("fields", [{"seed": 1, "sampling": Sampling(seed=1, temperature=0)}, {}, {"tier": "flex"}])
async def test_a_tenant_gets_all_slots_with_jobs_that_can_leave_them(fleet: Fleet, fields: dict[str, Any]) -> None:
    await fleet.put("b")
    await fleet.put("a", 4, **fields)
    assert len(await fleet.claim(slots=5)) == 5
    assert not fleet.kept


async def test_a_lone_tenant_is_never_limited(fleet: Fleet) -> None:
    await fleet.put("a", 4, seed=1)
    assert len(await fleet.claim()) == 4


async def test_jobs_that_had_slots_get_them_again(fleet: Fleet) -> None:
    await fleet.put("a", 5, seed=1)
    running = await fleet.claim()
    assert len(running) == 4
    await fleet.put("b")
    await fleet.queue.release("w1", [(job, 1) for job in running])
    fleet.kept.clear()
    assert await fleet.claim(worker="w2") == running
    fleet.kept.popitem()
    assert await fleet.claim(used=3, worker="w2") == ["b6"]


@pytest.mark.parametrize("length", [42_000, 150_000])
async def test_a_new_request_is_found_behind_any_number_that_may_not_have_slots(fleet: Fleet, length: int) -> None:
    await fleet.put("a", 250, seed=1)
    # Each costs as much as thirty of those, or more than a page of them: the last ones are behind all of them.
    long = (Message(role="user", content="x" * length),)
    await fleet.put("b", messages=long)
    assert sorted(await fleet.claim()) == ["a1", "a2", "b251"]
    for job in range(252, 264):
        await fleet.put("b", messages=long)
        assert await fleet.claim(used=3) == [f"b{job}"]


async def test_a_tenant_that_has_sent_nothing_for_a_minute_limits_nobody(fleet: Fleet) -> None:
    await fleet.put("b")
    await fleet.claim()
    await fleet.put("a", 4, seed=1)
    await fleet.put("a")
    seconds, _ = await fleet.redis.time()
    await awaitable(fleet.redis.hset(keys.fair_queue("tiny"), "newest", f"a {seconds} {seconds - 61}"))
    assert len(await fleet.claim()) == 4


async def test_without_keys_nobody_is_limited(fleet: Fleet) -> None:
    await fleet.put("b")
    await fleet.claim()
    await fleet.put("", 4, seed=1)
    assert len(await fleet.claim()) == 4


async def test_tenants_keep_in_proportion_to_their_weights_and_one_slot_at_least(fleet: Fleet) -> None:
    await fleet.put("b")
    await fleet.claim()
    await fleet.put("a", 6, seed=1, weights=Weights(3))
    assert len(await fleet.claim(slots=8)) == 6
    await fleet.put("b", 3, seed=1)
    assert await fleet.claim(used=6, slots=8) == ["b8"]


async def test_no_job_leaves_its_slot_for_one_that_could_not_claim_it(fleet: Fleet) -> None:
    await fleet.put("c", 3)
    await fleet.claim(slots=3)
    await fleet.put("a", 2, seed=1)
    await fleet.claim(used=3)
    assert await fleet.yield_slot("c3") == "c3", "a may keep half of the slots"
    assert await fleet.claim(used=3) == ["a5"]
    await fleet.put("a", 2, seed=1)
    assert await fleet.yield_slot("c2") is None
