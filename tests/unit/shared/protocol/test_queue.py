"""The claim and lease protocol, script by script, on a simulated Redis."""

import time

import pytest
from arq.connections import ArqRedis

from shared.protocol.events import CANCELLED, Delta, Finished, decode_frame, encode_event, encode_frame
from shared.protocol.queue import Emitter, JobQueue, Lease, QueueFull, StaleClaims
from shared.protocol.queue.texts import script_text
from shared.redis import keys
from tests.support.emitting import emit, journal_of
from tests.support.eventually import PATIENCE
from tests.support.jobs import REPLICA, enqueue
from tests.support.redis_types import awaitable
from tests.support.wall_clock import WallClock


async def test_jobs_are_claimed_in_the_order_they_came(queue: JobQueue, wall_clock: WallClock) -> None:
    assert await enqueue(queue, "a") == 0
    wall_clock.advance(0.002)
    assert await enqueue(queue, "b") == 1
    claims, left = await queue.claim("w1", used=0, slots=1)
    assert [claim.job for claim in claims] == ["a"]
    assert left == 1
    assert await queue.depth() == (1, 1)


async def test_a_job_is_claimed_by_one_worker_only(queue: JobQueue) -> None:
    await enqueue(queue, *(f"j{number}" for number in range(40)))
    seen: list[str] = []
    for _ in range(10):
        for worker in ("w1", "w2", "w3"):
            claims, _ = await queue.claim(worker, used=0, slots=4)
            seen += [claim.job for claim in claims]
    assert sorted(seen) == sorted(f"j{number}" for number in range(40))


async def test_a_worker_takes_no_more_than_its_free_slots(queue: JobQueue) -> None:
    await enqueue(queue, "a", "b", "c", "d")
    claims, left = await queue.claim("w1", used=6, slots=8)
    assert len(claims) == 2
    assert left == 2
    assert await queue.claim("w1", used=8, slots=8) == ([], 2)


async def test_workers_with_free_slots_share_the_queue(queue: JobQueue) -> None:
    await queue.claim("w1", used=0, slots=8)
    await queue.claim("w2", used=0, slots=8)
    # Subscribed workers only count as free: these two have reported their load by claiming.
    await queue.redis.zadd(keys.load("tiny"), {"w1": 0, "w2": 0})
    pairs = {f"j{number}": number for number in range(4)}
    await queue.redis.mset({keys.payload(name): b"payload" for name in pairs})
    await queue.redis.zadd(keys.queue("tiny"), {name: number + 1 for name, number in pairs.items()})
    first, left = await queue.claim("w1", used=0, slots=8)
    assert (len(first), left) == (2, 2)


async def test_a_full_queue_takes_all_or_none(queue: JobQueue) -> None:
    assert await enqueue(queue, "a", "b", limit=3) == 0
    with pytest.raises(QueueFull) as full:
        await enqueue(queue, "c", "d", limit=3)
    assert full.value.ahead == 2
    assert await queue.depth() == (2, 0)
    assert await enqueue(queue, "c", limit=3) == 2


async def test_arq_itself_can_read_what_is_queued(queue: JobQueue, redis: ArqRedis) -> None:
    await enqueue(queue, "a")
    (found,) = await redis.queued_jobs(queue_name=keys.queue("tiny"))
    assert (found.job_id, found.function) == ("a", "chat")


async def test_a_step_is_published_and_journalled_together(queue: JobQueue, redis: ArqRedis) -> None:
    await enqueue(queue, "a")
    (claim,), _ = await queue.claim("w1", used=0, slots=1)
    async with redis.pubsub(ignore_subscribe_messages=True) as pubsub:
        await pubsub.subscribe(keys.replica_channel(REPLICA))
        await pubsub.get_message(timeout=PATIENCE)
        event = encode_event(Delta(0, (7,), "Hi"))
        assert await emit(redis, Emitter("tiny", "w1"), {Lease("a", claim.attempt, REPLICA): [event]}) == {REPLICA: 1}
        message = await pubsub.get_message(timeout=PATIENCE)
    assert message is not None
    assert decode_frame(message["data"])[0].event == Delta(0, (7,), "Hi")
    assert await journal_of(queue, "a") == [Delta(0, (7,), "Hi")]


async def test_a_step_of_several_jobs_is_one_frame_for_each_replica(queue: JobQueue, redis: ArqRedis) -> None:
    await enqueue(queue, "one", "two", "over")
    claims, _ = await queue.claim("w1", used=0, slots=3)
    attempts = {claim.job: claim.attempt for claim in claims}
    one, two, over = (
        Lease(job, attempts[job], replica) for job, replica in (("one", "r1"), ("two", "r2"), ("over", "r1"))
    )
    first, second, third = (encode_event(Delta(position, (7,), "Hi")) for position in range(3))
    async with redis.pubsub(ignore_subscribe_messages=True) as pubsub:
        for replica in ("r1", "r2"):
            await pubsub.subscribe(keys.replica_channel(replica))
            await pubsub.get_message(timeout=PATIENCE)
        step = {one: [first], two: [second, third], over: []}
        assert await emit(redis, Emitter("tiny", "w1"), step, ended={over}, load=0.25) == {"r1": 1, "r2": 1}
        frames = [await pubsub.get_message(timeout=PATIENCE) for _ in range(2)]
        assert await pubsub.get_message() is None
    assert [(frame["channel"].decode(), frame["data"]) for frame in frames if frame is not None] == [
        (keys.replica_channel("r1"), encode_frame((one.entry, first))),
        (keys.replica_channel("r2"), encode_frame((two.entry, second, two.entry, third))),
    ]
    assert [len(await journal_of(queue, job)) for job in ("one", "two", "over")] == [1, 2, 0]
    assert await queue.depth() == (0, 2)
    assert await redis.zscore(keys.load("tiny"), "w1") == 0.25


async def test_nobody_listening_is_told(queue: JobQueue, redis: ArqRedis) -> None:
    await enqueue(queue, "a")
    (claim,), _ = await queue.claim("w1", used=0, slots=1)
    event = encode_event(Delta(0, (7,), "Hi"))
    assert await emit(redis, Emitter("tiny", "w1"), {Lease("a", claim.attempt, REPLICA): [event]}) == {REPLICA: 0}


async def test_the_end_leaves_nothing_but_an_expiring_journal(queue: JobQueue, redis: ArqRedis) -> None:
    await enqueue(queue, "a")
    (claim,), _ = await queue.claim("w1", used=0, slots=1)
    last = encode_event(Finished(0, "stop"))
    held = Lease("a", claim.attempt, REPLICA)
    await emit(redis, Emitter("tiny", "w1"), {held: [last]}, ended={held}, load=0.0)
    assert await queue.depth() == (0, 0)
    left = {keys.journal("a"), keys.load("tiny"), keys.fair_queue("tiny")}
    assert set(await redis.keys("*")) == {name.encode() for name in left}
    assert 0 < await redis.pttl(keys.journal("a")) <= 60_000


async def test_a_journal_outlives_its_job_for_as_long_as_it_is_needed(queue: JobQueue, redis: ArqRedis) -> None:
    await enqueue(queue, "a")
    (claim,), _ = await queue.claim("w1", used=0, slots=1)
    await redis.set(keys.journal_needed("a"), "", px=600_000)
    held = Lease("a", claim.attempt, REPLICA)
    await emit(redis, Emitter("tiny", "w1"), {held: [encode_event(Finished(0, "stop"))]}, ended={held}, load=0.0)
    assert await redis.pttl(keys.journal("a")) > 500_000


async def test_an_expired_claim_goes_back_to_its_old_place(redis: ArqRedis, wall_clock: WallClock) -> None:
    queue = JobQueue(redis, "tiny", lease_ms=60_000)
    await enqueue(queue, "a")
    wall_clock.advance(0.002)
    await enqueue(queue, "b")
    (claim,), _ = await queue.claim("w1", used=0, slots=1)
    await emit(redis, Emitter("tiny", "w1"), {Lease("a", 1, REPLICA): [encode_event(Delta(0, (7,), "Hi"))]})
    wall_clock.advance(60)
    assert (await queue.reap())[0] == ["a"]
    (again,), left = await queue.claim("w2", used=0, slots=1)
    assert (claim.job, again.job, again.attempt, left) == ("a", "a", 2, 1)
    assert again.history() == [Delta(0, (7,), "Hi")]


async def test_a_worker_that_lost_its_claim_can_publish_nothing(redis: ArqRedis, wall_clock: WallClock) -> None:
    queue = JobQueue(redis, "tiny", lease_ms=60_000)
    await enqueue(queue, "lost", "kept")
    await queue.claim("w1", used=0, slots=2)
    wall_clock.advance(60)
    await queue.reap()
    await queue.claim("w2", used=0, slots=1)
    (kept,), _ = await queue.claim("w1", used=0, slots=2)
    moved = "lost" if kept.job == "kept" else "kept"
    event = encode_event(Delta(0, (7,), "Hi"))
    both = {Lease(moved, 1, REPLICA): [event], Lease(kept.job, kept.attempt, REPLICA): [event]}
    with pytest.raises(StaleClaims) as stale:
        await emit(redis, Emitter("tiny", "w1"), both)
    assert stale.value.claims == {(moved, 1)}
    assert await journal_of(queue, moved) == []
    assert await journal_of(queue, kept.job) == []


async def test_renewal_keeps_a_lease_and_names_what_is_lost(redis: ArqRedis, wall_clock: WallClock) -> None:
    queue = JobQueue(redis, "tiny", lease_ms=60_000)
    await enqueue(queue, "a", "b")
    await queue.claim("w1", used=0, slots=2)
    wall_clock.advance(59)
    assert await queue.renew("w1", [("a", 1), ("b", 2), ("c", 1)]) == ["b", "c"]
    wall_clock.advance(59)
    assert (await queue.reap())[0] == ["b"], "its lease was not renewed"
    wall_clock.advance(1)
    assert (await queue.reap())[0] == ["a"]


async def test_the_store_finds_a_claim_among_many_at_once(queue: JobQueue, redis: ArqRedis) -> None:
    """A hash of up to 512 values of at most 64 bytes is a list, in which a step searched for each of its jobs."""
    await enqueue(queue, "a")
    await queue.claim("w1", used=0, slots=1)
    await queue.cancel(["a"])
    (claim,) = (await awaitable(redis.hgetall(keys.claims("tiny")))).values()
    assert len(claim) > 64


async def test_a_waiting_job_is_cancelled_in_the_queue(queue: JobQueue, redis: ArqRedis) -> None:
    await enqueue(queue, "a")
    assert await queue.cancel(["a"]) == frozenset()
    assert await queue.depth() == (0, 0)
    assert await redis.exists(keys.payload("a")) == 0
    assert await journal_of(queue, "a") == [CANCELLED]
    assert 0 < await redis.pttl(keys.journal("a")) <= 60_000


async def test_a_running_job_is_cancelled_through_its_worker(queue: JobQueue, redis: ArqRedis) -> None:
    await enqueue(queue, "a")
    await queue.claim("w1", used=0, slots=1)
    async with redis.pubsub(ignore_subscribe_messages=True) as pubsub:
        await pubsub.subscribe(keys.worker_channel("w1"))
        await pubsub.get_message(timeout=PATIENCE)
        assert await queue.cancel(["a"]) == {"a"}
        message = await pubsub.get_message(timeout=PATIENCE)
    assert message is not None
    assert message["data"] == b"cancel a"
    # Should that message get lost, the next renewal says it again.
    assert await queue.renew("w1", [("a", 1)]) == ["a"]


async def test_a_cancelled_job_is_not_given_to_another_worker(redis: ArqRedis, wall_clock: WallClock) -> None:
    queue = JobQueue(redis, "tiny", lease_ms=60_000)
    await enqueue(queue, "a")
    await queue.claim("w1", used=0, slots=1)
    await queue.cancel(["a"])
    wall_clock.advance(60)
    assert (await queue.reap())[0] == []
    assert await queue.depth() == (0, 0)
    assert await redis.exists(keys.payload("a"), keys.state("a")) == 0
    assert await journal_of(queue, "a") == [CANCELLED]


async def test_released_jobs_wait_again(queue: JobQueue) -> None:
    await enqueue(queue, "a")
    await queue.claim("w1", used=0, slots=1)
    assert await queue.release("w2", [("a", 1)]) == 0
    assert await queue.release("w1", [("a", 1)]) == 1
    (claim,), _ = await queue.claim("w2", used=0, slots=1)
    assert claim.attempt == 2


async def test_a_claim_says_why_the_job_came_back(redis: ArqRedis, wall_clock: WallClock) -> None:
    queue = JobQueue(redis, "tiny", lease_ms=60_000)
    await enqueue(queue, "a")
    (first,), _ = await queue.claim("w1", used=0, slots=1)
    await queue.release("w1", [("a", 1)], cause="engine_lost")
    (second,), _ = await queue.claim("w1", used=0, slots=1)
    wall_clock.advance(60)
    await queue.reap()
    (third,), _ = await queue.claim("w2", used=0, slots=1)
    assert [claim.cause for claim in (first, second, third)] == ["", "engine_lost", "worker_lost"]


async def test_the_least_loaded_listening_worker_is_woken(queue: JobQueue, redis: ArqRedis) -> None:
    await redis.zadd(keys.load("tiny"), {"dead": 0.0, "idle": 0.1, "busy": 0.5, "full": 1.0})
    async with redis.pubsub(ignore_subscribe_messages=True) as pubsub:
        await pubsub.subscribe(*(keys.worker_channel(worker) for worker in ("idle", "busy", "full")))
        for _ in range(3):
            await pubsub.get_message(timeout=PATIENCE)
        await enqueue(queue, "a")
        message = await pubsub.get_message(timeout=PATIENCE)
    assert message is not None
    assert message["channel"] == keys.worker_channel("idle").encode()
    assert await redis.zscore(keys.load("tiny"), "dead") is None


async def test_crashes_and_lost_workers_are_counted(redis: ArqRedis, wall_clock: WallClock) -> None:
    queue = JobQueue(redis, "tiny", lease_ms=60_000)
    await enqueue(queue, "guilty", "innocent")
    await queue.claim("w1", used=0, slots=2)
    await queue.release("w1", [("guilty", 1), ("innocent", 1)], suspects={"guilty"})
    claims, _ = await queue.claim("w1", used=0, slots=2)
    assert {claim.job: (claim.crashes, claim.lost_workers) for claim in claims} == {
        "guilty": (1, 0),
        "innocent": (0, 0),
    }
    wall_clock.advance(60)
    await queue.reap()
    claims, _ = await queue.claim("w1", used=0, slots=2)
    assert {claim.job: (claim.crashes, claim.lost_workers) for claim in claims} == {
        "guilty": (1, 1),
        "innocent": (0, 1),
    }


async def test_a_job_that_was_cancelled_before_it_came_is_not_queued(queue: JobQueue, redis: ArqRedis) -> None:
    await queue.cancel(["late"])
    await enqueue(queue, "late", "other")
    claims, left = await queue.claim("w1", used=0, slots=4)
    assert ([claim.job for claim in claims], left) == (["other"], 0)
    assert 0 < await redis.pttl(keys.state("late")) <= 60_000


async def test_a_job_that_is_queued_twice_while_it_runs_keeps_its_worker(queue: JobQueue) -> None:
    await enqueue(queue, "a")
    await queue.claim("w1", used=0, slots=1)
    await enqueue(queue, "a")
    assert await queue.depth() == (0, 1)


@pytest.mark.parametrize("comes_back", [True, False])
async def test_leases_that_expired_while_the_store_was_away_hold_once_more(
    redis: ArqRedis, wall_clock: WallClock, comes_back: bool
) -> None:
    queue = JobQueue(redis, "tiny", lease_ms=60_000)
    await enqueue(queue, "a")
    await queue.reap()
    await queue.claim("w1", used=0, slots=1)
    wall_clock.advance(60)
    assert (await queue.reap())[0] == []
    if comes_back:
        assert await queue.renew("w1", [("a", 1)]) == []
    wall_clock.advance(59 if comes_back else 60)
    assert (await queue.reap())[0] == ([] if comes_back else ["a"])


async def test_who_reaps_is_told_when_the_next_lease_ends(redis: ArqRedis, wall_clock: WallClock) -> None:
    queue = JobQueue(redis, "tiny", lease_ms=60_000)
    await enqueue(queue, "a", "b")
    assert await queue.reap() == ([], None)
    await queue.claim("w1", used=0, slots=1)
    assert await queue.reap() == ([], 60)
    wall_clock.advance(10)
    short = JobQueue(redis, "tiny", lease_ms=30_000)
    await short.claim("w2", used=0, slots=1)
    assert await queue.reap() == ([], 30)
    wall_clock.advance(15)
    assert await queue.reap() == ([], 15)


async def test_a_clock_that_is_set_back_does_not_stop_the_reaping(redis: ArqRedis, wall_clock: WallClock) -> None:
    queue = JobQueue(redis, "tiny", lease_ms=60_000)
    await enqueue(queue, "a")
    await queue.reap()
    wall_clock.advance(-3600)
    await queue.claim("w1", used=0, slots=1)
    wall_clock.advance(20)
    assert await queue.reap() == ([], 40)
    wall_clock.advance(20)
    assert await queue.reap() == ([], 20)
    wall_clock.advance(20)
    assert (await queue.reap())[0] == ["a"]


@pytest.mark.parametrize(("fraction", "wait"), [(0.0, 2.0), (0.0004, 2.0), (0.0006, 2.001)])
async def test_a_lease_of_a_clock_that_was_set_back_ends_after_one_lease(
    redis: ArqRedis, wall_clock: WallClock, fraction: float, wait: float
) -> None:
    queue = JobQueue(redis, "tiny", lease_ms=2_000)
    wall_clock.advance(3600)
    await enqueue(queue, "a")
    await queue.claim("w1", used=0, slots=1)
    # Ends of leases are whole milliseconds, and so are waits for them, rounded up.
    wall_clock.advance(fraction - 3600)
    assert await queue.reap() == ([], wait)
    for _ in range(2):
        wall_clock.advance(wait / 3)
        assert (await queue.reap())[0] == []
    wall_clock.advance(wait / 3)
    assert await queue.reap() == (["a"], None)


async def test_no_job_stays_reserved_because_a_clock_was_set_back(queue: JobQueue, wall_clock: WallClock) -> None:
    await enqueue(queue, "a")
    await queue.redis.zadd(keys.reserved("tiny"), {"a dead-worker": (time.time() + 3600) * 1000})
    claims, _ = await queue.claim("w1", used=0, slots=1)
    assert [claim.job for claim in claims] == ["a"]


def test_a_script_makes_the_functions_that_it_needs_where_it_needs_them() -> None:
    """Each call makes them anew, and most steps end no job."""
    assert "function wake" not in script_text("note", 0)
    step, end = script_text("emit", 0).split("return publish()", 1)
    assert ("function read_claims" in step, "function drop" in step, "function drop" in end) == (False, False, True)
