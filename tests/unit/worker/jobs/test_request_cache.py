"""The jobs of one request share one copy of it: in the store, in the worker and in the prompt process."""

import asyncio
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import cast

import pytest
from arq.connections import ArqRedis

from api.build import Parts, build
from shared.protocol.errors import ProblemKind, RequestRefused, refuse
from shared.protocol.events import Finished, encode_event
from shared.protocol.queue import Claim, Emitter, JobQueue, Lease
from shared.protocol.registry import announce
from shared.protocol.request import ChatRequest, Image, Job, Message, QueuedJob, ResponseForm
from shared.redis import keys
from shared.runtime.settings import ApiSettings
from shared.runtime.tasks import cancel_all
from tests.support.emitting import emit
from tests.support.eventually import eventually
from tests.support.job_rig import ActiveJobs, JobRig, Publisher, consumer_of, no_publisher, run_until_empty
from tests.support.jobs import WORKER, request_of
from tests.support.prompts import Maker, requests_of
from tests.support.redis_types import awaitable
from tests.support.wall_clock import WallClock
from worker.images.messages import DecodedImage
from worker.jobs.draining import release_jobs
from worker.jobs.heartbeat import Heartbeat
from worker.jobs.registry_record import RegistryRecord
from worker.jobs.request_cache import RequestGone
from worker.prompt.messages import Prepared

CHOICES = 16
LONG = "x" * 200_000


def asked(text: str = LONG, n: int = CHOICES) -> ChatRequest:
    return ChatRequest(model=WORKER.model, messages=(Message(role="user", content=text),), n=n)


def jobs(request: ChatRequest, count: int = 3) -> list[Job]:
    return [Job(id=f"r:{choice}", reply_to="api-1", request=request, choice=choice) for choice in range(count)]


async def stored_bytes(redis: ArqRedis) -> int:
    """The size of all values in the store that hold requests."""
    total = 0
    for key in await redis.keys(f"{keys.PAYLOAD_PREFIX}*"):
        if await awaitable(redis.type(key)) == b"hash":
            total += sum(map(len, (await awaitable(redis.hgetall(key))).values()))
        else:
            total += await awaitable(redis.strlen(key))
    return total


async def replica_of(redis: ArqRedis) -> Parts:
    await announce(redis, WORKER, lease=60)
    replica = build(redis, ApiSettings(), "r")
    await replica.directory.refresh()
    return replica


async def submit(replica: Parts, request: ChatRequest) -> list[Job]:
    submitted = replica.chat.submission.split(request)
    stream = replica.chat.streams.open([job.id for job in submitted], request.model)
    await replica.chat.submission.enqueue(request, submitted, stream)
    return submitted


async def test_choices_do_not_multiply_what_is_stored(redis: ArqRedis) -> None:
    replica = await replica_of(redis)
    assert len(await submit(replica, asked())) == CHOICES
    assert len(LONG) < await stored_bytes(redis) < 1.1 * len(LONG)


async def test_prompts_of_a_batch_are_stored_once_each(redis: ArqRedis) -> None:
    replica = await replica_of(redis)
    prompts = tuple(letter * 50_000 for letter in "abc")
    await submit(replica, ChatRequest(model=WORKER.model, prompts=prompts, n=4))
    size = sum(map(len, prompts))
    assert size < await stored_bytes(redis) < 1.1 * size


async def test_what_only_the_exchange_needs_stays_with_it(redis: ArqRedis) -> None:
    replica = await replica_of(redis)
    form = {name: getattr(ResponseForm(), name) for name in ResponseForm.__struct_fields__}
    form |= {"stream": True, "best_of": 2, "metadata": (("case", "secret"),), "notes": (("x-a", "secret"),)}
    request = request_of(WORKER.model, prompts=("Hi",), **form)
    for job in await submit(replica, request):
        payload = await redis.get(keys.payload(job.id))
        assert payload is not None
        assert not [name for name in ("response", "best_of", "secret") if name.encode() in payload]


async def test_small_requests_stay_in_their_jobs(redis: ArqRedis) -> None:
    replica = await replica_of(redis)
    submitted = await submit(replica, asked("hello"))
    payloads = {key.decode() for key in await redis.keys(f"{keys.PAYLOAD_PREFIX}*")}
    assert payloads == {keys.payload(job.id) for job in submitted}


async def test_a_request_that_is_too_large_for_its_choices_is_refused(
    redis: ArqRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.chat.submission.MAX_MULTIPLIED_BYTES", CHOICES * len(LONG))
    replica = await replica_of(redis)
    with pytest.raises(RequestRefused) as refused:
        await submit(replica, asked())
    assert (refused.value.problem.kind, refused.value.problem.param) == (ProblemKind.TOO_LARGE, "n")
    assert await redis.keys(f"{keys.PAYLOAD_PREFIX}*") == []
    assert await submit(replica, asked(n=CHOICES - 1))


async def finish(queue: JobQueue, *claims: Claim) -> None:
    for claim in claims:
        held = Lease(claim.job, claim.attempt, "api-1")
        await emit(queue.redis, Emitter("tiny", "w1"), {held: [encode_event(Finished(0, "stop"))]}, ended={held})


async def test_the_last_job_to_end_deletes_the_request(queue: JobQueue) -> None:
    await queue.enqueue(jobs(asked()), limit=10)
    claims, _ = await queue.claim("w1", used=0, slots=3)
    await finish(queue, *claims[:2])
    assert await queue.shared_request("r") == asked()
    await finish(queue, claims[2])
    assert await queue.redis.keys(f"{keys.PAYLOAD_PREFIX}*") == []


async def test_cancelled_jobs_delete_the_request(redis: ArqRedis, wall_clock: WallClock) -> None:
    queue = JobQueue(redis, "tiny", lease_ms=60_000)
    await queue.enqueue(jobs(asked()), limit=10)
    await queue.claim("w1", used=0, slots=1)
    await queue.cancel(["r:0", "r:1", "r:2"])
    assert await queue.shared_request("r") is not None, "a worker has one of the jobs"
    wall_clock.advance(60)
    await queue.reap()
    assert await redis.keys(f"{keys.PAYLOAD_PREFIX}*") == []


async def test_a_job_that_returns_to_the_queue_keeps_its_request(queue: JobQueue) -> None:
    await queue.enqueue(jobs(asked(), 2), limit=10)
    claims, _ = await queue.claim("w1", used=0, slots=2)
    await finish(queue, claims[0])
    await queue.release("w1", [(claims[1].job, claims[1].attempt)])
    assert await queue.shared_request("r") == asked()
    assert await queue.redis.pttl(keys.request("r")) > 0


async def test_jobs_that_are_queued_twice_share_one_request(queue: JobQueue) -> None:
    for _ in range(2):
        await queue.enqueue(jobs(asked()), limit=10)
    claims, left = await queue.claim("w1", used=0, slots=8)
    assert (len(claims), left) == (3, 0)
    await queue.enqueue(jobs(asked()), limit=10)
    await finish(queue, *claims)
    assert await queue.redis.keys(f"{keys.PAYLOAD_PREFIX}*") == []


async def test_jobs_that_were_cancelled_before_they_came_store_no_request(queue: JobQueue) -> None:
    await queue.cancel(["r:0", "r:1", "r:2"])
    await queue.enqueue(jobs(asked()), limit=10)
    assert await queue.redis.keys(f"{keys.PAYLOAD_PREFIX}*") == []


class Reads(JobQueue):
    """A queue that counts how often shared requests are read."""

    reads = 0

    async def shared_request(self, request_id: str) -> ChatRequest | None:
        self.reads += 1
        return await super().shared_request(request_id)


async def test_a_worker_reads_the_request_once(redis: ArqRedis) -> None:
    queue = Reads(redis, "tiny", lease_ms=60_000)
    served: list[Job] = []

    async def serve(claim: Claim, job: Job) -> None:
        served.append(job)
        await asyncio.Event().wait()

    await queue.enqueue(jobs(asked()), limit=10)
    consumer = consumer_of(queue, serve, slots=3)
    running = asyncio.create_task(consumer.run())
    await eventually(lambda: len(served) == 3)
    await cancel_all({running})
    await consumer.stop()
    assert sorted(served, key=lambda job: job.id) == jobs(asked())
    assert served[0].request is served[1].request is served[2].request
    assert queue.reads == 1


async def test_jobs_whose_request_is_gone_become_dead_letters(redis: ArqRedis) -> None:
    queue = Reads(redis, "tiny", lease_ms=60_000)

    await queue.enqueue(jobs(asked()), limit=10)
    await redis.delete(keys.request("r"))
    await run_until_empty(consumer_of(queue, JobRig(no_publisher, queue=queue).runner, slots=3), queue)
    assert await awaitable(redis.llen(keys.dead_letters("tiny"))) == 3
    assert await redis.keys(f"{keys.PAYLOAD_PREFIX}*") == []
    assert await queue.depth() == (0, 0)


class Slow(JobQueue):
    """A queue whose shared requests do not arrive."""

    async def shared_request(self, request_id: str) -> ChatRequest | None:
        await asyncio.Event().wait()
        raise AssertionError


class Published:
    """Stands for a publisher that has nothing to publish."""

    async def flushed(self) -> None:
        pass


async def test_jobs_whose_request_is_being_read_keep_their_leases_and_are_released(
    redis: ArqRedis, wall_clock: WallClock
) -> None:
    async def serve(claim: Claim, job: Job) -> None:
        raise AssertionError("there is nothing to serve")

    queue, active = Slow(redis, "tiny", lease_ms=2_000), ActiveJobs()
    await queue.enqueue(jobs(asked()), limit=10)
    consumer = consumer_of(queue, serve, jobs=active, slots=3)
    running = asyncio.create_task(consumer.run())
    heartbeat = Heartbeat(queue, "w1", active, cast(RegistryRecord, SimpleNamespace(current=lambda: WORKER)), lease=2.0)
    await eventually(lambda: len(active) == 3)
    for _ in range(3):
        await heartbeat.renew()
        wall_clock.advance(1)
    assert await queue.depth() == (0, 3)
    consumer.close()
    await release_jobs(queue, cast(Publisher, Published()), "w1", active, cause="worker_draining")
    await consumer.drained()
    assert await queue.depth() == (3, 0)
    claims, _ = await queue.claim("w2", used=0, slots=3)
    assert [(claim.attempt, claim.lost_workers) for claim in claims] == 3 * [(2, 0)]
    await cancel_all({running})


async def test_an_outage_does_not_lose_a_shared_request(redis: ArqRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    class Away(JobQueue):
        outages = 2

        async def shared_request(self, request_id: str) -> ChatRequest | None:
            if self.outages:
                self.outages -= 1
                raise ConnectionError("away")
            return await super().shared_request(request_id)

    monkeypatch.setattr("worker.jobs.request_cache._RETRY", 0.0)
    queue = Away(redis, "tiny")
    await queue.enqueue(jobs(asked()), limit=10)
    requests = requests_of(queue)
    whole = jobs(asked())[0]
    assert await requests.complete(QueuedJob.of(whole, None)) == whole


async def test_only_the_newest_requests_are_kept(redis: ArqRedis) -> None:
    queue = Reads(redis, "tiny", lease_ms=60_000)
    requests = requests_of(queue)
    for name in "abcdef":
        request = asked()
        of = [Job(id=f"{name}:{choice}", reply_to="api-1", request=request) for choice in (0, 1)]
        await queue.enqueue(of, limit=100)
        await requests.complete(QueuedJob.of(of[0], None))
    assert queue.reads == 6
    await requests.complete(QueuedJob(id="f:1", reply_to="api-1"))
    assert queue.reads == 6
    await requests.complete(QueuedJob(id="a:1", reply_to="api-1"))
    assert queue.reads == 7
    requests.clear()
    with pytest.raises(RequestGone):
        await requests.complete(QueuedJob(id="z:1", reply_to="api-1"))


async def test_the_prompt_of_several_jobs_is_made_once() -> None:
    maker = Maker()
    requests = requests_of(prompts=maker)
    first, second, third = jobs(asked("one"))
    leaving, staying = (asyncio.create_task(requests.prompt(job)) for job in (first, second))
    await settle()
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    maker.replies[0].set_result(Prepared((3,)))
    assert (await staying).tokens == (3,)
    assert (await requests.prompt(third)).tokens == (3,)
    assert maker.asked == ["one"]


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def look(*digests: str, choice: int = 0) -> Job:
    images = tuple(Image(param=f"messages[0].content[{part}]", digest=digest) for part, digest in enumerate(digests))
    request = ChatRequest(model="tiny", messages=(Message(role="user", content="look", images=images),))
    return Job(id=f"r:{choice}", reply_to="api-1", request=request, choice=choice)


class Images(JobQueue):
    """A queue with the file of every image but of "gone"; the store is unreachable for the first ``outages`` reads."""

    def __init__(self, outages: int = 0) -> None:
        self.outages = outages
        self.fetched: list[tuple[str, list[str]]] = []

    async def images(self, request_id: str, digests: Sequence[str]) -> list[bytes | None]:
        if self.outages:
            self.outages -= 1
            raise ConnectionError("away")
        self.fetched.append((request_id, sorted(digests)))
        return [None if digest == "gone" else digest.encode() for digest in digests]


async def pixels_of(job: Job, files: Mapping[str, bytes]) -> list[DecodedImage]:
    return [DecodedImage(1, 1, files[image.digest]) for image in job.request.images]


async def test_jobs_of_one_request_share_its_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.jobs.request_cache._RETRY", 0.0)
    maker, store = Maker(), Images(outages=2)
    requests = requests_of(store, maker, pixels_of)
    first, second = (asyncio.create_task(requests.prompt(look(*"xyx", choice=choice))) for choice in range(2))
    await settle()
    first.cancel()
    maker.replies[0].set_result(Prepared((3, 4), places=((1, 0), (0, 1), (2, 2))))
    assert [(image.at, image.pixels) for image in (await second).images] == [(0, b"y"), (1, b"x"), (2, b"x")]
    assert (len(maker.asked), store.fetched) == (1, [("r", ["x", "y"])])


async def test_an_image_that_is_not_stored_any_more_is_named() -> None:
    maker = Maker()
    wanted = asyncio.create_task(requests_of(Images(), maker).prompt(look("x", "gone", "gone")))
    await settle()
    maker.replies[0].set_result(Prepared((3,)))
    with pytest.raises(RequestRefused, match="send the request again") as caught:
        await wanted
    assert (caught.value.problem.kind, caught.value.problem.param) == (ProblemKind.LOST, "messages[0].content[1]")


async def test_no_image_of_a_refused_prompt_is_read() -> None:
    maker, store = Maker(), Images()
    wanted = asyncio.create_task(requests_of(store, maker).prompt(look("x")))
    await settle()
    maker.replies[0].set_exception(refuse(ProblemKind.TEMPLATE, "no such template"))
    with pytest.raises(RequestRefused, match="no such template"):
        await wanted
    assert store.fetched == []
