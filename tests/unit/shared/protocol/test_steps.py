"""The events of a step are one value in the worker's log, until they go to the journals."""

import pytest
from arq.connections import ArqRedis

from shared.protocol.events import Delta, Event, Finished, encode_event
from shared.protocol.queue import Emitter, JobQueue, Lease, StaleClaims
from shared.redis import keys
from tests.support.emitting import emit, journal_of
from tests.support.jobs import REPLICA, job
from tests.support.redis_types import awaitable
from tests.support.wall_clock import WallClock

LOG = keys.journal_steps("w1")


class Worker:
    """A worker with the jobs a and b, whose steps have a token of each."""

    def __init__(self, queue: JobQueue) -> None:
        self.queue = queue
        self.emitter = Emitter("tiny", "w1")
        self.leases = [Lease("a", 1, REPLICA), Lease("b", 1, REPLICA)]
        self.position = 0

    async def step(self, *leases: Lease) -> None:
        """Emit a token of all jobs, or of these only."""
        events = {lease: [encode_event(Delta(self.position, (7,), "ä\n"))] for lease in leases or self.leases}
        await emit(self.queue.redis, self.emitter, events)
        self.position += 1

    async def logged(self) -> int:
        """The length of its log of steps."""
        return int(await awaitable(self.queue.redis.llen(LOG)))

    async def journalled(self, name: str) -> int:
        return int(await awaitable(self.queue.redis.llen(keys.journal(name))))


@pytest.fixture
async def worker(wall_clock: WallClock, queue: JobQueue) -> Worker:
    await queue.enqueue([job("a"), job("b")], limit=2)
    await queue.claim("w1", used=0, slots=2)
    return Worker(queue)


def tokens(count: int) -> list[Event]:
    return [Delta(position, (7,), "ä\n") for position in range(count)]


async def test_a_log_goes_to_the_journals_when_it_is_long(worker: Worker) -> None:
    for _ in range(17):
        await worker.step()
    assert (await worker.logged(), await worker.journalled("a"), await worker.journalled("b")) == (16, 1, 1)
    assert await worker.queue.redis.pttl(LOG) > 0
    await worker.step()
    assert (await worker.logged(), await worker.journalled("a"), await worker.journalled("b")) == (0, 18, 18)
    assert await journal_of(worker.queue, "b") == tokens(18)


async def test_readers_complete_journals_without_repeats(worker: Worker) -> None:
    for _ in range(5):
        await worker.step()
    assert await journal_of(worker.queue, "a") == tokens(5)
    assert (await worker.logged(), await worker.journalled("b")) == (0, 5)
    for _ in range(20):
        await worker.step()
    assert [await journal_of(worker.queue, name) for name in ("a", "b", "unknown")] == [tokens(25), tokens(25), []]


async def test_an_end_completes_its_own_journal_and_the_last_one_leaves_no_log(worker: Worker) -> None:
    for _ in range(3):
        await worker.step()
    first, second = worker.leases
    end = encode_event(Finished(3, "stop"))
    await emit(worker.queue.redis, worker.emitter, {first: [end]}, ended={first})
    assert (await worker.journalled("a"), await worker.journalled("b"), await worker.logged()) == (4, 1, 2)
    await emit(worker.queue.redis, worker.emitter, {second: [end]}, ended={second})
    for name in ("a", "b"):
        assert await journal_of(worker.queue, name) == [*tokens(3), Finished(3, "stop")]
    assert await worker.queue.redis.exists(LOG, keys.claims("tiny")) == 0


@pytest.mark.parametrize("earlier_release", [False, True])
async def test_another_worker_continues_behind_the_last_step(
    worker: Worker, wall_clock: WallClock, earlier_release: bool
) -> None:
    redis = worker.queue.redis
    for _ in range(3):
        await worker.step()
    if earlier_release:  # its scripts know of no log
        await redis.zrem(keys.inflight("tiny"), "a")
        await awaitable(redis.hdel(keys.claims("tiny"), "a"))
        await awaitable(redis.hset(keys.state("a"), mapping={"cause": "worker_lost", "source": "w1"}))
        await redis.zadd(keys.queue("tiny"), {"a": 1})
    else:
        wall_clock.advance(60)
        assert sorted((await worker.queue.reap())[0]) == ["a", "b"]
    claims, _ = await worker.queue.claim("w2", used=0, slots=2)
    assert {claim.job: claim.history() for claim in claims} == {
        name: tokens(3) for name in (("a",) if earlier_release else ("a", "b"))
    }
    with pytest.raises(StaleClaims) as stale:
        await worker.step()
    assert stale.value.claims >= {("a", 1)}
    assert await journal_of(worker.queue, "a") == tokens(3)


async def test_a_worker_that_lost_one_of_its_jobs_goes_on_with_the_others(worker: Worker) -> None:
    for _ in range(3):
        await worker.step()
    assert await worker.queue.release("w1", [("a", 1)]) == 1
    with pytest.raises(StaleClaims) as stale:
        await worker.step()
    assert stale.value.claims == {("a", 1)}
    for _ in range(20):
        await worker.step(worker.leases[1])
    assert await journal_of(worker.queue, "a") == tokens(3)
    journal = await journal_of(worker.queue, "b")
    assert list(dict.fromkeys(map(repr, journal))) == list(map(repr, tokens(23)))


async def test_a_worker_that_was_frozen_is_checked_whoever_has_reaped(worker: Worker, wall_clock: WallClock) -> None:
    for _ in range(3):
        await worker.step()
    await awaitable(worker.queue.redis.hdel(keys.claims("tiny"), "a"))  # by a process of the last release
    wall_clock.advance(2)
    with pytest.raises(StaleClaims) as stale:
        await worker.step()
    assert stale.value.claims == {("a", 1)}


async def test_a_store_that_lost_its_last_writes_checks_all_leases(worker: Worker, redis: ArqRedis) -> None:
    """It has forgotten the claim of a, and the steps after it."""
    await worker.step(worker.leases[1])
    older = str(await awaitable(redis.hget(keys.claims("tiny"), "worker w1")), "ascii")
    for _ in range(3):
        await worker.step()
    await awaitable(redis.hset(keys.claims("tiny"), "worker w1", older))
    await awaitable(redis.hdel(keys.claims("tiny"), "a"))
    await redis.delete(LOG)
    with pytest.raises(StaleClaims) as stale:
        await worker.step()
    assert stale.value.claims == {("a", 1)}
    await worker.step(worker.leases[1])
    assert [event.position for event in await journal_of(worker.queue, "b") if isinstance(event, Delta)] == [*range(5)]
