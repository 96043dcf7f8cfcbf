"""A prompt is begun when a worker is woken for its job, and made once whoever claims that."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

import msgspec
import pytest

from shared.protocol.errors import Problem, ProblemKind, RequestRefused, refuse
from shared.protocol.queue import Claim, JobQueue
from shared.protocol.request import ChatRequest, Image, Job, Message
from shared.redis import keys
from shared.runtime.tasks import cancel_all
from tests.support.eventually import PATIENCE
from tests.support.jobs import job
from tests.support.prompts import Maker, prompts_of
from worker.images.interface import DecodedImage
from worker.jobs.active_jobs import ActiveJobs
from worker.jobs.consumer import JobConsumer, Serve
from worker.prompt.interface import Prepared
from worker.prompt.prefetch import MAX_PREFETCHED, PromptPrefetcher
from worker.prompt.process import PromptProcess


async def test_a_prompt_that_was_begun_is_not_made_twice() -> None:
    maker = Maker()
    prompts = prompts_of(maker)
    prompts.prefetch(job("a", "one"))
    prompts.prefetch(job("a", "one"))
    assert maker.asked == ["one"]
    maker.answers[0].set_result(Prepared((3,)))
    assert (await prompts.get(job("a", "one"))).tokens == (3,)
    assert maker.asked == ["one"]


async def test_one_that_was_not_begun_is_asked_for_when_it_is_wanted() -> None:
    maker = Maker()
    wanted = asyncio.create_task(prompts_of(maker).get(job("a", "one")))
    await asyncio.sleep(0)
    assert maker.asked == ["one"]
    maker.answers[0].set_result(Prepared((3,)))
    assert (await wanted).tokens == (3,)


async def test_a_refusal_reaches_whoever_wants_the_prompt() -> None:
    maker = Maker()
    prompts = prompts_of(maker)
    prompts.prefetch(job("a", "bad"))
    maker.answers[0].set_exception(refuse(ProblemKind.TEMPLATE, "no such template"))
    with pytest.raises(RequestRefused, match="no such template"):
        await prompts.get(job("a", "bad"))


async def test_only_so_many_are_begun() -> None:
    maker = Maker()
    prompts = prompts_of(maker)
    for number in range(MAX_PREFETCHED + 1):
        prompts.prefetch(job(f"j{number}", str(number)))
    assert maker.asked == [str(number) for number in range(MAX_PREFETCHED)]
    maker.answers[0].set_result(Prepared((0,)))
    await prompts.get(job("j0", "0"))
    prompts.prefetch(job("late", "late"))
    assert maker.asked[MAX_PREFETCHED:] == ["late"]


async def test_what_others_have_claimed_makes_room() -> None:
    maker = Maker()
    prompts = prompts_of(maker, patience=0.0)
    for number in range(MAX_PREFETCHED + 1):
        prompts.prefetch(job(f"j{number}", str(number)))
        await asyncio.sleep(0.001)
    assert len(maker.asked) == MAX_PREFETCHED + 1
    assert [answer.cancelled() for answer in maker.answers] == [True] * MAX_PREFETCHED + [False]
    # Who comes for it after all gets it.
    wanted = asyncio.create_task(prompts.get(job("j0", "0")))
    await asyncio.sleep(0)
    maker.answers[-1].set_result(Prepared((0,)))
    assert (await wanted).tokens == (0,)


async def woken_with(queue: JobQueue, queued: Job) -> bytes:
    """Queue a job; return the message with which the one idle worker is woken."""
    async with queue.redis.pubsub(ignore_subscribe_messages=True) as pubsub:
        await pubsub.subscribe(keys.worker_channel("w1"))
        await pubsub.get_message(timeout=PATIENCE)
        await queue.claim("w1", used=0, slots=1)
        await queue.enqueue([queued], limit=10)
        message = await pubsub.get_message(timeout=PATIENCE)
    assert message is not None
    data: bytes = message["data"]
    return data


async def test_a_worker_is_told_the_job_that_it_is_woken_for(queue: JobQueue) -> None:
    data = await woken_with(queue, job("a"))
    claims, _ = await queue.claim("w1", used=0, slots=1)
    assert data == b"wake " + claims[0].payload


async def test_a_large_job_is_not_sent_twice(queue: JobQueue) -> None:
    assert await woken_with(queue, job("a", "x" * 20_000)) == b"wake"


@asynccontextmanager
async def consumer_of(
    queue: JobQueue, serve: Serve, *, capacity: Callable[[], int], prefetched: list[str]
) -> AsyncIterator[JobConsumer]:
    """A running consumer that appends the ids of jobs to prefetch to ``prefetched``."""
    consumer = JobConsumer(
        queue,
        "w1",
        serve,
        jobs=ActiveJobs(),
        capacity=capacity,
        poll=3600,
        prefetch=lambda job: prefetched.append(job.id),
    )
    running = asyncio.create_task(consumer.run())
    yield consumer
    await cancel_all({running})
    await consumer.stop()


async def test_a_consumer_prefetches_what_it_has_room_for(queue: JobQueue) -> None:
    payload = (await woken_with(queue, job("a"))).removeprefix(b"wake ")
    slots = 0
    prefetched: list[str] = []
    served: asyncio.Queue[str] = asyncio.Queue()

    async def serve(claim: Claim, claimed: Job) -> None:
        served.put_nowait(claim.job)
        await asyncio.Event().wait()

    async with consumer_of(queue, serve, capacity=lambda: slots, prefetched=prefetched) as consumer:
        consumer.wake(payload)
        assert prefetched == [], "no engine is loaded yet, and nothing is claimed"
        slots = 1
        consumer.wake(payload)
        consumer.wake(b"\x93not a job")
        consumer.wake()
        assert prefetched == ["a"]
        async with asyncio.timeout(PATIENCE):
            assert await served.get() == "a"
        consumer.wake(payload)
        assert prefetched == ["a"], "it is full"


async def test_a_closed_consumer_claims_nothing_though_an_engine_is_loaded(queue: JobQueue) -> None:
    payload = (await woken_with(queue, job("a"))).removeprefix(b"wake ")
    slots = 0
    prefetched: list[str] = []

    async def serve(claim: Claim, claimed: Job) -> None:
        raise AssertionError("nothing is claimed")

    async with consumer_of(queue, serve, capacity=lambda: slots, prefetched=prefetched) as consumer:
        consumer.close()
        slots = 1  # an engine that crashed during the drain was replaced
        consumer.wake(payload)
        await asyncio.sleep(0.05)
        assert prefetched == []
        assert (await queue.depth()) == (1, 0)


def with_images(name: str, *digests: str) -> Job:
    images = tuple(Image(param=f"messages[0].content[{part}]", digest=digest) for part, digest in enumerate(digests))
    request = ChatRequest(model="tiny", messages=(Message(role="user", content="look", images=images),))
    return msgspec.structs.replace(job(name), request=request)


async def wanted(prompts: PromptPrefetcher, maker: Maker, *jobs: Job) -> list[asyncio.Task[Prepared]]:
    """The tasks that wait for the prompts of ``jobs``, once the prompt process was asked."""
    tasks = [asyncio.create_task(prompts.get(one)) for one in jobs]
    for _ in range(20):
        await asyncio.sleep(0)
    assert maker.answers
    return tasks


async def pixels_of(job: Job) -> list[DecodedImage]:
    return [DecodedImage(1, 1, image.digest.encode()) for image in job.request.images]


async def test_a_prompt_gets_its_images_at_their_places() -> None:
    maker = Maker()
    (task,) = await wanted(PromptPrefetcher(cast(PromptProcess, maker), pixels_of), maker, with_images("a", "x", "y"))
    maker.answers[0].set_result(Prepared((3, 4), places=((1, 0), (0, 2))))
    assert [(image.at, image.pixels) for image in (await task).images] == [(0, b"y"), (2, b"x")]


async def test_no_image_of_a_refused_prompt_is_decoded() -> None:
    async def decode(job: Job) -> list[DecodedImage]:
        raise AssertionError

    maker = Maker()
    (task,) = await wanted(PromptPrefetcher(cast(PromptProcess, maker), decode), maker, with_images("a", "x"))
    problem = Problem(kind=ProblemKind.TEMPLATE, message="no")
    maker.answers[0].set_exception(RequestRefused(problem))
    with pytest.raises(RequestRefused) as refused:
        await task
    assert refused.value.problem is problem


async def test_images_are_left_to_the_claim_and_their_prompt_is_not() -> None:
    decoded: list[str] = []

    async def decode(job: Job) -> list[DecodedImage]:
        decoded.extend(image.digest for image in job.request.images)
        return await pixels_of(job)

    maker = Maker()
    prompts = PromptPrefetcher(cast(PromptProcess, maker), decode)
    prompts.prefetch(with_images("a", "x"))
    maker.answers[0].set_result(Prepared((3,), places=((0, 1),)))
    for _ in range(20):
        await asyncio.sleep(0)
    assert (len(maker.asked), decoded) == (1, [])
    prepared = await prompts.get(with_images("a", "x"))
    assert ([image.pixels for image in prepared.images], len(maker.asked), decoded) == ([b"x"], 1, ["x"])


async def test_jobs_of_one_request_share_its_images() -> None:
    maker = Maker()
    prompts = PromptPrefetcher(cast(PromptProcess, maker), pixels_of)
    first, second = await wanted(prompts, maker, with_images("r:0", "x"), with_images("r:1", "x"))
    first.cancel()
    maker.answers[0].set_result(Prepared((3,), places=((0, 1),)))
    assert [image.pixels for image in (await second).images] == [b"x"]
    assert len(maker.asked) == 1
