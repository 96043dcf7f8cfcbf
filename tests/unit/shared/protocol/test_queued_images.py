"""The images of queued requests: stored with the request, deleted with its last job, bounded for all and per tenant."""

import pytest
from arq.connections import ArqRedis

from shared.protocol.events import Finished, encode_event
from shared.protocol.queue import Claim, Emitter, JobQueue, Lease, QueueFull
from shared.protocol.request import ChatRequest, Image, Job, Message, Tier
from shared.redis import keys
from tests.support.emitting import emit
from tests.support.redis_types import awaitable
from tests.support.wall_clock import WallClock

CAT, DOG = b"cat" * 100, b"dog" * 100
LIMIT = 1000
WEEK = 7 * 24 * 3600


def jobs(name: str, *digests: str, n: int = 1, tenant: str = "key-a", tier: Tier = "default") -> list[Job]:
    images = tuple(Image(digest=digest) for digest in digests)
    request = ChatRequest(model="tiny", messages=(Message(role="user", images=images),), tier=tier)
    return [
        Job(id=f"{name}:{choice}", reply_to="api-1", request=request, choice=choice, tenant=tenant)
        for choice in range(n)
    ]


async def enqueue(queue: JobQueue, name: str, size: int, *, tenant: str = "key-a", tier: Tier = "default") -> None:
    """Enqueue a request with an image of ``size`` bytes."""
    submitted = jobs(name, "x", tenant=tenant, tier=tier)
    await queue.enqueue(submitted, limit=100, images={"x": bytes(size)}, max_media_bytes=LIMIT)


async def finish(queue: JobQueue, *claims: Claim) -> None:
    for claim in claims:
        held = Lease(claim.job, claim.attempt, "api-1")
        await emit(queue.redis, Emitter("tiny", "w1"), {held: [encode_event(Finished(0, "stop"))]}, ended={held})


async def counted(redis: ArqRedis) -> dict[bytes, bytes]:
    return dict(await awaitable(redis.hgetall(keys.sizes("tiny"))))


async def requests(redis: ArqRedis) -> list[bytes]:
    return list(await redis.keys(keys.request("*")))


async def test_images_live_until_the_last_job_of_their_request_has_ended(queue: JobQueue) -> None:
    await queue.enqueue(jobs("r", "c", "d", n=2), limit=10, images={"c": CAT, "d": DOG}, max_media_bytes=len(CAT + DOG))
    first, second = (await queue.claim("w1", used=0, slots=2))[0]
    await finish(queue, first)
    assert await queue.images("r", ["d", "c", "none"]) == [DOG, CAT, None]
    await finish(queue, second)
    assert await queue.images("r", ["c"]) == [None]
    assert await requests(queue.redis) == []
    assert await counted(queue.redis) == {}


async def test_images_of_a_cancelled_request_are_deleted(queue: JobQueue) -> None:
    await enqueue(queue, "r", 100)
    await queue.cancel(["r:0"])
    assert await requests(queue.redis) == []


async def test_images_that_do_not_fit_leave_nothing(queue: JobQueue) -> None:
    with pytest.raises(QueueFull):
        await enqueue(queue, "r", LIMIT + 1)
    assert await queue.redis.keys("*") == []
    await enqueue(queue, "r", LIMIT)


async def test_a_tenant_leaves_as_much_as_it_has_for_others(queue: JobQueue) -> None:
    for number in range(5):
        await enqueue(queue, f"a{number}", 100, tenant="a")
    with pytest.raises(QueueFull):
        await enqueue(queue, "a5", 100, tenant="a")
    await enqueue(queue, "b0", 250, tenant="b")
    with pytest.raises(QueueFull):
        await enqueue(queue, "b1", 100, tenant="b")
    await enqueue(queue, "c0", 250, tenant="c")
    with pytest.raises(QueueFull):
        await enqueue(queue, "d0", 100, tenant="d")
    await queue.cancel(["a0:0", "a1:0"])
    await enqueue(queue, "d0", 100, tenant="d")


async def test_without_keys_one_tenant_has_everything(queue: JobQueue) -> None:
    for number in range(10):
        await enqueue(queue, f"r{number}", 100, tenant="")
    with pytest.raises(QueueFull):
        await enqueue(queue, "full", 1, tenant="")


async def test_batch_requests_hold_a_quarter_at_most(queue: JobQueue) -> None:
    await enqueue(queue, "l0", 100, tenant="a", tier="batch")
    await enqueue(queue, "l1", 100, tenant="b", tier="batch")
    with pytest.raises(QueueFull):
        await enqueue(queue, "l2", 100, tenant="c", tier="batch")
    await enqueue(queue, "r", 400, tenant="a")


async def test_a_batch_request_of_any_size_gets_its_turn(queue: JobQueue) -> None:
    await enqueue(queue, "l0", LIMIT, tenant="a", tier="batch")
    await queue.cancel(["l0:0"])
    await enqueue(queue, "l1", 10, tenant="b", tier="batch")
    with pytest.raises(QueueFull):
        await enqueue(queue, "l2", LIMIT, tenant="a", tier="batch")


async def test_a_repeated_command_counts_once(queue: JobQueue) -> None:
    for _ in range(3):
        await enqueue(queue, "r", LIMIT)
    await queue.cancel(["r:0"])
    await enqueue(queue, "other", LIMIT)


async def test_what_expires_does_not_count(queue: JobQueue, redis: ArqRedis, wall_clock: WallClock) -> None:
    await enqueue(queue, "expires", LIMIT)
    wall_clock.advance(WEEK)
    await enqueue(queue, "r", LIMIT)
    await queue.cancel(["r:0", "expires:0"])
    assert await counted(redis) == {}
