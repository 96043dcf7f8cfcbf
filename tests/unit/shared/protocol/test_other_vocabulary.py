"""Jobs with tokens are continued only by workers with the same vocabulary and chat template."""

import msgspec
from arq.connections import ArqRedis

from shared.protocol.events import Delta, Started, encode_event
from shared.protocol.queue import Claim, Emitter, JobQueue, Lease
from shared.protocol.request import ChatRequest, Job, Message
from shared.redis import keys
from tests.support.emitting import emit
from tests.support.eventually import PATIENCE
from tests.support.jobs import REPLICA, WORKER, enqueue
from tests.support.redis_types import awaitable
from tests.support.wall_clock import WallClock

BLUE, GREEN = "digest of blue", "digest of green"


async def serve(queue: JobQueue, name: str, status: str = "serving") -> None:
    """Let a worker with the blue vocabulary send a heartbeat."""
    await queue.renew(name, info=msgspec.structs.replace(WORKER, id=name, vocabulary=BLUE, status=status))


async def claim(queue: JobQueue, name: str, vocabulary: str, *, slots: int = 8) -> tuple[list[Claim], int]:
    return await queue.claim(name, used=0, slots=slots, vocabulary=vocabulary)


async def claim_all(queue: JobQueue, name: str, vocabulary: str) -> list[Claim]:
    """Claim until there is nothing for this worker."""
    claimed: list[Claim] = []
    while (claims := await claim(queue, name, vocabulary))[0]:
        claimed += claims[0]
    return claimed


async def generate_and_return(queue: JobQueue, name: str, vocabulary: str, *jobs: str) -> None:
    """Let a worker claim these jobs, publish a token of each, and release them."""
    claims = await claim_all(queue, name, vocabulary)
    assert {one.job for one in claims} == set(jobs)
    leases = [Lease(one.job, one.attempt, REPLICA) for one in claims]
    events = [encode_event(Started(name, 1, "fp")), encode_event(Delta(0, (7,), "x"))]
    await emit(queue.redis, Emitter("tiny", name), dict.fromkeys(leases, events))
    await queue.release(name, [(lease.job, lease.attempt) for lease in leases])


async def test_a_job_without_tokens_starts_over_on_any_worker(queue: JobQueue, redis: ArqRedis) -> None:
    await serve(queue, "blue")
    await enqueue(queue, "a")
    await claim(queue, "blue", BLUE)
    await queue.release("blue", [("a", 1)])
    ((again,), _) = await claim(queue, "green", GREEN)
    assert (again.attempt, again.foreign) == (2, False)


async def test_a_job_with_tokens_waits_for_a_worker_that_has_the_vocabulary(queue: JobQueue, redis: ArqRedis) -> None:
    for name in ("blue", "blue 2"):
        await serve(queue, name)
    await enqueue(queue, "a", "b")
    await generate_and_return(queue, "blue", BLUE, "a", "b")
    await claim(queue, "blue", BLUE, slots=1)
    await queue.release("blue", [("a", 2)])
    assert await claim(queue, "green", GREEN) == ([], 2)
    claims = await claim_all(queue, "blue", BLUE)
    assert [(one.job, one.foreign, len(one.journal)) for one in claims] == [("a", False, 2), ("b", False, 2)]


async def test_jobs_behind_one_that_waits_are_claimed(queue: JobQueue, redis: ArqRedis) -> None:
    await serve(queue, "blue")
    await enqueue(queue, "a", "b")
    await generate_and_return(queue, "blue", BLUE, "a", "b")
    await enqueue(queue, "c", "d", "e")
    await redis.zadd(keys.load("tiny"), {"blue": 1})
    claims, waiting = await claim(queue, "green", GREEN, slots=2)
    assert ([one.job for one in claims], waiting) == (["c", "d"], 3)
    claims, waiting = await claim(queue, "green", GREEN, slots=2)
    assert ([one.job for one in claims], waiting) == (["e"], 2)
    await enqueue(queue, "f")
    assert [one.job for one in await claim_all(queue, "blue", BLUE)] == ["a", "b", "f"]


async def test_batch_requests_leave_slots_free_while_a_job_waits(queue: JobQueue, redis: ArqRedis) -> None:
    await serve(queue, "blue")
    await enqueue(queue, "a")
    await generate_and_return(queue, "blue", BLUE, "a")
    await redis.zadd(keys.load("tiny"), {"blue": 1})
    line = ChatRequest(model="tiny", messages=(Message(role="user", content="hello"),), tier="batch")
    await queue.enqueue([Job(id=f"line {at}", reply_to=REPLICA, request=line) for at in range(3)], limit=10)
    claims, waiting = await queue.claim("green", used=0, slots=4, batch_reserve=2, vocabulary=GREEN)
    assert ([one.job for one in claims], waiting) == (["line 0", "line 1"], 1)


async def test_a_worker_that_has_the_vocabulary_is_woken(queue: JobQueue, redis: ArqRedis) -> None:
    await serve(queue, "blue")
    async with redis.pubsub() as subscriber:
        await subscriber.subscribe(keys.worker_channel("blue"))
        await enqueue(queue, "a")
        await generate_and_return(queue, "blue", BLUE, "a")
        while await subscriber.get_message(timeout=0.1):
            pass
        await claim(queue, "green", GREEN)
        message = await subscriber.get_message(timeout=PATIENCE)
        assert message is not None
        assert message["data"] == b"wake"


async def test_without_a_worker_that_has_the_vocabulary_the_job_is_claimed_to_end(
    queue: JobQueue, redis: ArqRedis
) -> None:
    await serve(queue, "blue")
    await enqueue(queue, "a")
    await generate_and_return(queue, "blue", BLUE, "a")
    assert await claim(queue, "green", GREEN) == ([], 1)
    await queue.withdraw("blue")
    ((claimed,), _) = await claim(queue, "green", GREEN)
    assert (claimed.job, claimed.foreign) == ("a", True)
    # The worker that was to end it disappears, and one with the vocabulary returns.
    await queue.release("green", [("a", claimed.attempt)])
    ((claimed,), _) = await claim(queue, "green 2", GREEN)
    assert claimed.foreign
    await queue.release("green 2", [("a", claimed.attempt)])
    ((claimed,), _) = await claim(queue, "blue 2", BLUE)
    assert not claimed.foreign


async def test_a_worker_that_does_not_serve_or_serves_another_model_is_not_waited_for(
    queue: JobQueue, redis: ArqRedis
) -> None:
    await enqueue(queue, "a")
    await generate_and_return(queue, "blue", BLUE, "a")
    await serve(queue, "blue")
    await serve(queue, "blue", "failing")
    await serve(JobQueue(redis, "other"), "other")
    ((claimed,), _) = await claim(queue, "green", GREEN)
    assert claimed.foreign


async def test_a_job_of_an_older_worker_is_continued(queue: JobQueue, redis: ArqRedis) -> None:
    """Workers of older versions name no vocabulary."""
    await enqueue(queue, "a")
    await generate_and_return(queue, "old", BLUE, "a")
    await awaitable(redis.hdel(keys.state("a"), "vocabulary"))
    ((claimed,), _) = await claim(queue, "green", GREEN)
    assert not claimed.foreign


async def test_an_unreadable_entry_of_a_worker_loses_no_job(queue: JobQueue, redis: ArqRedis) -> None:
    await enqueue(queue, "a", "b")
    await generate_and_return(queue, "blue", BLUE, "a", "b")
    await serve(queue, "blue")
    for number, entry in enumerate(("{", "", "1 2", f"1 60000 1 {BLUE}")):
        await awaitable(redis.hset(keys.serving("tiny"), f"unreadable or gone {number}", entry))
    assert await claim(queue, "green", GREEN) == ([], 2)
    assert [one.job for one in await claim_all(queue, "blue", BLUE)] == ["a", "b"]
    await serve(queue, "new")
    assert {*await awaitable(redis.hkeys(keys.serving("tiny")))} == {b"blue", b"new"}


async def test_a_worker_that_sends_no_heartbeat_is_not_waited_for(
    queue: JobQueue, redis: ArqRedis, wall_clock: WallClock
) -> None:
    await enqueue(queue, "a")
    await generate_and_return(queue, "blue", BLUE, "a")
    await serve(queue, "blue")
    wall_clock.advance(61)
    ((claimed,), _) = await claim(queue, "green", GREEN)
    assert claimed.foreign
