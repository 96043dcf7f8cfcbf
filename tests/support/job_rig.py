"""The parts of a worker that run jobs, wired as in ``worker/main.py``: claims in, events out."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import cast

import msgspec

from shared.protocol.events import Event, encode_event
from shared.protocol.queue import Claim, JobQueue
from shared.protocol.queue.packing import MAX_BYTES, pack_jobs
from shared.protocol.request import Generate, Job, Sampling, Tokenize, Work
from shared.runtime.tasks import cancel_all
from shared.tracing import NO_TRACING, Tracing
from tests.support.eventually import eventually
from tests.support.jobs import job
from tests.support.prompts import requests_of
from worker.engine.handle import CurrentEngine, EngineProcess, LoadedEngine
from worker.engine.protocol import EngineInfo
from worker.grammar.service import GrammarProcess
from worker.images.tokens import ImageTokens
from worker.jobs.active_jobs import ActiveJobs
from worker.jobs.attempt import Attempt, Hold
from worker.jobs.consumer import JobConsumer
from worker.jobs.gates.batches import BatchGate
from worker.jobs.gates.prefix import PrefixGate
from worker.jobs.gates.quarantine import Quarantine
from worker.jobs.generation import GenerationRunner
from worker.jobs.output_processor import OutputProcessor
from worker.jobs.payload import read_payload
from worker.jobs.publisher import Publisher
from worker.jobs.request_cache import RequestCache
from worker.jobs.runner import JobRunner, KindRunner
from worker.jobs.tokenization import TokenizationRunner

__all__ = [
    "INFO", "ActiveJobs", "Attempt", "Hold", "JobRig", "Publisher", "Serving", "attempt_of", "claim_of", "consumer_of",
    "no_publisher", "read_payload", "run_until_empty",
]  # fmt: skip

INFO = EngineInfo(context_length=4096, cache_tokens=8192, slots=4, fingerprint="fp", device="CPU", load_seconds=0.1)


class JobRig:
    """A job runner and an output processor, with the publisher, the prompts and the engine of the test."""

    def __init__(
        self,
        publisher: Callable[[ActiveJobs, CurrentEngine], Publisher],
        *,
        queue: JobQueue | None = None,
        requests: RequestCache | None = None,
        prompts: object = None,
        grammars: object = None,
        tracing: Tracing = NO_TRACING,
        caching: bool = True,
        slots: int = 4,
    ) -> None:
        self.jobs = ActiveJobs()
        self.current = CurrentEngine(slots=slots)
        self.publisher = publisher(self.jobs, self.current)
        requests = requests or requests_of(queue, prompts)
        gates = (Quarantine(), PrefixGate(caching=caching), BatchGate())
        self.generations = GenerationRunner(
            "w1", self.current, requests, cast(GrammarProcess | None, grammars), gates, Sampling()
        )
        kinds: dict[type[Work], KindRunner] = {
            Generate: self.generations,
            Tokenize: TokenizationRunner("w1", self.current, self.publisher, requests, ImageTokens(None)),
        }
        self.runner = JobRunner(
            "w1", cast(JobQueue, queue), self.jobs, self.publisher, requests, kinds, tracing, log_poison=False
        )
        self.outputs = OutputProcessor(self.jobs, self.current, self.publisher)

    def load(self, engine: object, info: EngineInfo = INFO) -> None:
        """Run jobs in ``engine`` from now on."""
        self.current.set(LoadedEngine(cast(EngineProcess, engine), info))


def no_publisher(jobs: ActiveJobs, engine: CurrentEngine) -> Publisher:
    """For jobs that end before they publish anything."""
    return cast(Publisher, None)


class Serving:
    """Stands for a job runner: registers each attempt, and has the test serve it."""

    def __init__(
        self, serve: Callable[[Claim, Job], Awaitable[None]], jobs: ActiveJobs, requests: RequestCache
    ) -> None:
        self._serve = serve
        self._jobs = jobs
        self._requests = requests

    async def run(self, claim: Claim) -> None:
        with self._jobs.registered(claim, read_payload(claim)) as attempt:
            job = await self._requests.complete(attempt.queued)
            attempt.request = job.request
            await self._serve(claim, job)


def consumer_of(
    queue: JobQueue,
    serve: Callable[[Claim, Job], Awaitable[None]] | JobRunner,
    *,
    worker: str = "w1",
    slots: int = 4,
    jobs: ActiveJobs | None = None,
    poll: float = 3600,
    batch_reserve: int | None = 0,
    query_reserve: int = 0,
) -> JobConsumer:
    """A consumer of a worker whose engine is loaded. It claims when it is woken, or has reason to."""
    jobs = jobs if jobs is not None else ActiveJobs()
    requests, engine = requests_of(queue), CurrentEngine(slots=slots)
    info = msgspec.structs.replace(INFO, slots=slots, query_reserve=query_reserve)
    engine.set(LoadedEngine(cast(EngineProcess, None), info))
    runner = serve if isinstance(serve, JobRunner) else cast(JobRunner, Serving(serve, jobs, requests))
    return JobConsumer(queue, worker, runner, jobs, requests, engine, poll=poll, batch_reserve=batch_reserve)


async def run_until_empty(consumer: JobConsumer, queue: JobQueue) -> None:
    running = asyncio.create_task(consumer.run())

    async def is_empty() -> bool:
        return await queue.depth() == (0, 0)

    await eventually(is_empty)
    await consumer.drained()
    await cancel_all({running})


def claim_of(
    claimed: Job,
    attempt: int = 1,
    *,
    history: Iterable[Event] = (),
    crashes: int = 0,
    lost_workers: int = 0,
    cause: str = "",
    foreign: bool = False,
) -> Claim:
    """A claim of a job whose request is in its payload."""
    (payload,) = pack_jobs([claimed], MAX_BYTES).payloads
    journal = tuple(map(encode_event, history))
    return Claim(claimed.id, attempt, payload, journal, crashes, lost_workers, cause, foreign)


def attempt_of(name: str | Job, number: int = 1, *, crashes: int = 0, lost_workers: int = 0) -> Attempt:
    """The first attempt at a job, which no task runs."""
    claimed = job(name) if isinstance(name, str) else name
    claim = claim_of(claimed, crashes=crashes, lost_workers=lost_workers)
    attempt = Attempt(claim, read_payload(claim), number, cast("asyncio.Task[None]", None))
    attempt.request = claimed.request
    return attempt
