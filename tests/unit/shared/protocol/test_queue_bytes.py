"""The bytes of queued and claimed jobs: counted exactly, bounded, and shared between tenants."""

import random

import pytest
from arq.connections import ArqRedis

from shared.protocol.cost import UNBOUNDED_RESPONSE
from shared.protocol.events import Finished, encode_event
from shared.protocol.queue import Claim, Emitter, JobQueue, JobsTooLarge, Lease, QueueFull
from shared.protocol.queue.occupancy import OccupancyReader, waiting_tokens
from shared.protocol.request import ChatRequest, Job, Message
from shared.redis import keys
from tests.support.emitting import emit, journal_of
from tests.support.fuzzing import cases
from tests.support.jobs import REPLICA
from tests.support.redis_types import awaitable
from tests.support.wall_clock import WallClock

END = encode_event(Finished(0, "stop"))
SMALL, LARGE = 100, 10_000
LIMIT = 10 * LARGE


def jobs(name: str, tenant: str = "", *, size: int = LARGE, choices: int = 1) -> list[Job]:
    request = ChatRequest(model="tiny", messages=(Message(role="user", content="x" * size),))
    names = [f"{name}:{choice}" for choice in range(choices)] if choices > 1 else [name]
    return [Job(id=job, reply_to=REPLICA, request=request, choice=at, tenant=tenant) for at, job in enumerate(names)]


async def put(queue: JobQueue, name: str, tenant: str, *, size: int = LARGE) -> None:
    await queue.enqueue(jobs(name, tenant, size=size), limit=100, limit_bytes=LIMIT)


async def counted(redis: ArqRedis) -> dict[str, int]:
    """The sums of bytes."""
    fields = await awaitable(redis.hgetall(keys.sizes("tiny")))
    prefix = b"sum:text"
    return {name.decode()[len(prefix) :]: int(value) for name, value in fields.items() if name.startswith(prefix)}


async def stored(redis: ArqRedis) -> int:
    """The bytes of the payloads and shared requests that are there."""
    size = 0
    for key in await redis.keys(f"{keys.PAYLOAD_PREFIX}*"):
        if key.startswith(keys.request("").encode()):
            size += len(await awaitable(redis.hget(key, "request")))
        else:
            size += len(await redis.get(key))
    return size


@pytest.mark.parametrize("seed", range(cases(2)))
async def test_bytes_and_claims_leave_with_the_job_however_it_ends(
    redis: ArqRedis, wall_clock: WallClock, seed: int
) -> None:
    queue, emitter = JobQueue(redis, "tiny"), Emitter("tiny", "w1")
    chance = random.Random(seed)
    known: list[str] = []
    held: list[Claim] = []

    async def end(some: list[Claim]) -> None:
        leases = [Lease(claim.job, claim.attempt, REPLICA) for claim in some]
        await emit(redis, emitter, {lease: [END] for lease in leases}, ended=leases)

    for number in range(150):
        action = chance.choice(("put", "put", "claim", "end", "release", "reap", "cancel", "unreadable"))
        some = [held.pop() for _ in range(min(len(held), 2))] if action in ("end", "release", "unreadable") else []
        if action == "put":
            new = jobs(
                str(number), chance.choice("abc"), size=chance.choice((SMALL, LARGE)), choices=chance.choice((1, 3))
            )
            known += [job.id for job in new]
            for _ in range(chance.choice((1, 2))):  # perhaps repeated
                await queue.enqueue(new, limit=1000)
        elif action == "claim":
            held += (await queue.claim("w1", used=0, slots=4))[0]
        elif action == "end" and some:
            await end(some)
        elif action == "release":
            await queue.release("w1", [(claim.job, claim.attempt) for claim in some])
        elif action == "reap":
            await queue.reap()
            wall_clock.advance(60 * 60)
            for _ in range(2):
                await queue.reap()
                wall_clock.advance(0.5)
            held.clear()
        elif action == "cancel":
            cancelled = chance.sample(known, min(len(known), 3))
            await queue.cancel(cancelled)
            await end([claim for claim in held if claim.job in cancelled])
            held = [claim for claim in held if claim.job not in cancelled]
        else:
            for claim in some:
                await queue.move_to_dead_letters("w1", claim, END)
        sums = await counted(redis)
        total = sums.pop("", 0)
        assert total == sum(sums.values())
        if number < 20:  # later, records of jobs that wait for hours have expired
            assert total == await stored(redis)
        assert await awaitable(redis.hlen(keys.claims("tiny"))) == await redis.zcard(keys.inflight("tiny"))
    await queue.cancel(known)
    await queue.release("w1", [(claim.job, claim.attempt) for claim in held])
    assert await queue.depth() == (0, 0)
    assert not await redis.exists(keys.sizes("tiny"), keys.claims("tiny"))


async def test_the_bytes_of_all_are_bounded(queue: JobQueue) -> None:
    for number in range(8):
        await put(queue, str(number), "")
    await queue.claim("w1", used=0, slots=8)  # claimed jobs count as well
    await put(queue, "8", "")
    with pytest.raises(QueueFull) as full:
        await put(queue, "9", "")
    assert full.value.by == "bytes"
    assert full.value.excess == 1
    await put(queue, "small", "", size=SMALL)


async def test_a_tenant_leaves_room_for_others(queue: JobQueue, redis: ArqRedis) -> None:
    for number in range(4):
        await put(queue, f"a{number}", "a")
    with pytest.raises(QueueFull) as full:
        await put(queue, "a4", "a")
    assert full.value.by == "tenant_bytes"
    assert full.value.excess == 1
    assert (await counted(redis))[":other:a"] < LIMIT / 2
    for number in range(2):
        await put(queue, f"b{number}", "b")
    # Its first request needs no share, and one that has ended leaves room.
    await put(queue, "c", "c", size=2 * LARGE)
    await queue.cancel([f"a{number}" for number in range(4)])
    await put(queue, "a9", "a")


async def test_what_can_never_fit_is_too_large(queue: JobQueue) -> None:
    with pytest.raises(JobsTooLarge):
        await put(queue, "a", "a", size=LIMIT)


async def test_a_worker_that_lost_its_lease_moves_nothing_to_the_dead_letters(queue: JobQueue, redis: ArqRedis) -> None:
    await queue.enqueue(jobs("a"), limit=1)
    ((first,), _) = await queue.claim("w1", used=0, slots=1)
    await queue.release("w1", [("a", 1)])
    ((second,), _) = await queue.claim("w2", used=0, slots=1)
    await queue.move_to_dead_letters("w1", first, END)
    assert await journal_of(queue, "a") == []
    assert await queue.depth() == (0, 1)
    await queue.move_to_dead_letters("w2", second, END)
    assert await journal_of(queue, "a") == [Finished(0, "stop")]
    assert await awaitable(redis.lrange(keys.dead_letters("tiny"), 0, -1)) == [second.payload]


async def test_the_tokens_of_waiting_jobs_follow_their_bytes(redis: ArqRedis, queue: JobQueue) -> None:
    async def tokens() -> tuple[int, int]:
        return await waiting_tokens(redis, "tiny", await OccupancyReader(redis).read("tiny"))

    assert await tokens() == (0, 0)
    await put(queue, "a", "one", size=LARGE)
    await put(queue, "b", "two", size=LARGE)
    waiting, batch = await tokens()
    assert 2 * (LARGE // 4 + UNBOUNDED_RESPONSE) <= waiting < 2.5 * (LARGE // 4 + UNBOUNDED_RESPONSE)
    assert batch == 0
    await queue.claim("w", used=0, slots=1)
    assert (await tokens())[0] == pytest.approx(waiting / 2, abs=1)
