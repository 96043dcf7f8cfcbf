"""Whose job is next: bands of priority, and fair shares between tenants inside a band."""

import time
from collections import Counter

import pytest
from arq.connections import ArqRedis

from shared.protocol.queue import JobQueue, QueueFull
from shared.protocol.request import ChatRequest, Job, Message, Sampling, Tier
from shared.redis import keys
from tests.support.redis_types import awaitable


def job(name: str, tenant: str, *, tier: Tier | None = None, tokens: int = 100) -> Job:
    request = ChatRequest(
        model="tiny",
        messages=(Message(role="user", content="hello"),),
        sampling=Sampling(max_tokens=tokens),
        tier=tier,
    )
    return Job(id=name, reply_to="api-1", request=request, tenant=tenant)


async def put(queue: JobQueue, tenant: str, count: int = 1, *, tier: Tier | None = None, tokens: int = 100) -> None:
    jobs = [job(f"{tenant}-{tier}-{number}", tenant, tier=tier, tokens=tokens) for number in range(count)]
    await queue.enqueue(jobs, limit=10_000)


async def take(queue: JobQueue, count: int) -> list[str]:
    """The tenants of the next jobs, in the order of their claims."""
    taken: list[str] = []
    for _ in range(count):
        claims, _ = await queue.claim("w", used=0, slots=1)
        taken += [claim.job.split("-")[0] for claim in claims]
    return taken


async def test_a_single_request_overtakes_anothers_thousand(queue: JobQueue) -> None:
    await put(queue, "many", 1000)
    await take(queue, 20)
    await put(queue, "one")
    assert await take(queue, 1) == ["one"]


async def test_tenants_that_want_all_get_as_many_tokens_each(queue: JobQueue) -> None:
    await put(queue, "long", 100, tokens=390)
    await put(queue, "short", 100, tokens=90)
    # Each prompt is counted with 5 tokens, so a long one costs about four short ones.
    assert Counter(await take(queue, 100)) == pytest.approx({"short": 80, "long": 20}, abs=3)


async def test_nobody_starves(queue: JobQueue) -> None:
    await put(queue, "big", 1, tokens=100_000)
    order: list[str] = []
    for number in range(100):
        await queue.enqueue([job(f"small-{number}", "small")], limit=10_000)
        await queue.enqueue([job(f"other-{number}", "other")], limit=10_000)
        order += await take(queue, 1)
        if number == 0:
            await queue.enqueue([job("big-again", "big")], limit=10_000)
    # Having been given 100,000 tokens at once, it waits for the others to get as many, but no longer.
    assert "big" in order[:3]
    assert order.count("small") == pytest.approx(order.count("other"), abs=2)


async def test_who_was_away_does_not_save_up_a_lead(queue: JobQueue) -> None:
    await put(queue, "early", 2)
    await put(queue, "steady", 200)
    await take(queue, 150)
    await put(queue, "early", 50)
    assert Counter(await take(queue, 40)) == pytest.approx({"early": 20, "steady": 20}, abs=2)


async def test_bands_are_strict_whoever_waits_in_them(queue: JobQueue) -> None:
    for tier in ("batch", "flex", "default", "priority"):
        await put(queue, "a", 3, tier=tier)
        await put(queue, "b", 3, tier=tier)
    await put(queue, "c", 3)
    names = []
    for _ in range(27):
        claims, _ = await queue.claim("w", used=0, slots=1)
        names += [claim.job.split("-")[1] for claim in claims]
    assert names == ["priority"] * 6 + names[6:15] + ["flex"] * 6 + ["batch"] * 6
    assert set(names[6:15]) == {"default", "None"}


async def test_the_limit_counts_only_those_that_go_first(queue: JobQueue) -> None:
    for number in range(10):
        await queue.enqueue([job(f"many-{number}", "many")], limit=10)
    with pytest.raises(QueueFull) as full:
        await queue.enqueue([job("many-11", "many")], limit=10)
    assert full.value.ahead == 10
    assert await queue.enqueue([job("one", "one")], limit=10) <= 1
    assert await queue.enqueue([job("urgent", "many", tier="priority")], limit=10) == 0
    with pytest.raises(QueueFull):
        await queue.enqueue([job("flex", "one", tier="flex")], limit=10)


async def test_a_charge_moves_the_next_place_of_a_tenant(queue: JobQueue) -> None:
    await put(queue, "cheap", 1, tokens=5000)
    await put(queue, "dear", 1, tokens=100)
    await put(queue, "steady", 100)
    await take(queue, 3)
    # It turned out the other way round.
    await queue.charge("cheap", None, -4900, job="a")
    await queue.charge("dear", None, 4900, job="b")
    await queue.enqueue([job("cheap-next", "cheap")], limit=1000)
    await queue.enqueue([job("dear-next", "dear")], limit=1000)
    order = await take(queue, 101)
    assert order.index("cheap") < 3
    assert 40 < order.index("dear") < 60


async def test_a_request_that_returns_keeps_its_place_and_turns_no_time_back(queue: JobQueue) -> None:
    await put(queue, "a", 3)
    (claim,), _ = await queue.claim("w", used=0, slots=1)
    await take(queue, 1)
    await queue.release("w", [(claim.job, claim.attempt)])
    before = await awaitable(queue.redis.hget(keys.fair_queue("tiny"), "time:-2"))
    (again,), _ = await queue.claim("w", used=0, slots=1)
    assert again.job == claim.job
    assert await awaitable(queue.redis.hget(keys.fair_queue("tiny"), "time:-2")) == before


async def test_arqs_own_reader_takes_every_score(queue: JobQueue) -> None:
    for tier in ("batch", "flex", "default", "priority"):
        await put(queue, "a", 1, tier=tier)
    found = await queue.redis.queued_jobs(queue_name=keys.queue("tiny"))
    assert [info.job_id for info in found] == ["a-priority-0", "a-default-0", "a-flex-0", "a-batch-0"]
    scores = [info.score for info in found]
    # arq passes over scores of 0 and takes those above the current time (ms) for later.
    assert all(score is not None and score != 0 and score < 1_000_000_000_000 for score in scores)


async def test_lines_of_batches_leave_slots_free(queue: JobQueue) -> None:
    await put(queue, "a", 10, tier="batch")
    claims, left = await queue.claim("w", used=0, slots=8, batch_reserve=2)
    assert (len(claims), left) == (6, 0)
    assert await queue.claim("w", used=6, slots=8, batch_reserve=2) == ([], 0)
    await put(queue, "b", 1)
    ((claim,), left) = await queue.claim("w", used=6, slots=8, batch_reserve=2)
    assert (claim.job, left) == ("b-None-0", 0)
    claims, left = await queue.claim("w", used=5, slots=8, batch_reserve=2)
    assert ([claim.job for claim in claims], left) == (["a-batch-6"], 0)
    assert await queue.depth() == (3, 8)


async def test_lines_of_batches_come_after_all_others_in_one_claim(queue: JobQueue) -> None:
    await put(queue, "a", 10, tier="batch")
    await put(queue, "b", 3, tier="flex")
    claims, left = await queue.claim("w", used=1, slots=8, batch_reserve=1)
    assert [claim.job for claim in claims] == [*(f"b-flex-{n}" for n in range(3)), *(f"a-batch-{n}" for n in range(3))]
    assert left == 0
    assert await queue.depth() == (7, 6)


async def test_lines_of_batches_leave_slots_free_beside_reserved_jobs_too(redis: ArqRedis) -> None:
    queue = JobQueue(redis, "tiny", reserved_ms=600_000)
    await put(queue, "a", 4, tier="batch")
    await put(queue, "b", 2)
    await queue.redis.zadd(keys.reserved("tiny"), {"b-None-0 other": 1000 * (time.time() + 300)})
    claims, _ = await queue.claim("w", used=0, slots=4, batch_reserve=2)
    assert [claim.job for claim in claims] == ["b-None-1"]
