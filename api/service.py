"""The service behind every route: admit a request, queue its jobs, watch over its answer."""

import asyncio
import logging
import uuid

import msgspec
from arq.connections import ArqRedis
from redis.exceptions import RedisError

from api.answers.selection import jobs_per_prompt, needs_logprobs
from api.directory import Directory
from api.relay import Answer, Relay
from shared.errors import Problem, ProblemKind, refuse
from shared.queue import JobQueue
from shared.request import ChatRequest, Job
from shared.settings import ApiSettings

logger = logging.getLogger(__name__)

_RETRY_SOON = 1.0
_RETRY_NO_WORKER = 5.0


class ChatService:
    """Admission, and the life of answers in this replica."""

    def __init__(self, redis: ArqRedis, relay: Relay, directory: Directory, replica: str, settings: ApiSettings) -> None:
        self._redis = redis
        self._relay = relay
        self._directory = directory
        self._replica = replica
        self._settings = settings
        self._queues: dict[str, JobQueue] = {}
        self._goodbyes: set[asyncio.Task[None]] = set()
        self._timers: dict[Answer, asyncio.TimerHandle] = {}
        self.draining = False

    async def submit(self, request: ChatRequest) -> Answer:
        """Accept ``request``: its jobs are queued when this returns, and the answer must be closed at its end.

        Raises :class:`RequestRefused` when it can't be accepted.
        """
        if self.draining:
            raise refuse(
                ProblemKind.SHUTTING_DOWN, "This server is shutting down. Please try again.", retry_after=_RETRY_SOON
            )
        await self.require_model(request.model)
        jobs = self._jobs(request)
        answer = Answer([job.id for job in jobs], request.model)
        self._relay.open(answer)
        self._timers[answer] = asyncio.get_running_loop().call_later(
            self._settings.request_timeout, answer.fail, _TIMED_OUT
        )
        try:
            waiting = await self.queue(request.model).enqueue(jobs, limit=self._settings.max_queue)
        except (RedisError, OSError) as error:
            self.close(answer)
            raise _store_unavailable() from error
        except asyncio.CancelledError:
            self.close(answer)
            raise
        if waiting is None:
            self._forget(answer)
            raise refuse(
                ProblemKind.QUEUE_FULL,
                f"The queue of model '{request.model}' is full ({self._settings.max_queue} requests wait). "
                "Please try again later.",
                retry_after=_RETRY_SOON,
            )
        return answer

    def close(self, answer: Answer) -> None:
        """End an answer: nothing more is relayed, and jobs that are not over are cancelled."""
        self._forget(answer)
        if answer.abandoned or not answer.over:
            task = asyncio.create_task(self._cancel(answer), name="cancel jobs")
            self._goodbyes.add(task)
            task.add_done_callback(self._goodbyes.discard)

    def queue(self, model: str) -> JobQueue:
        """The queue of ``model``."""
        queue = self._queues.get(model)
        if queue is None:
            queue = self._queues[model] = JobQueue(
                self._redis, model, lease_ms=int(self._settings.lease * 1000)
            )
        return queue

    async def watch(self) -> None:
        """Until cancelled: put lapsed jobs back, and end answers whose model has lost all workers."""
        while True:
            await asyncio.sleep(self._settings.lease / 3)
            try:
                for model in self._directory.fleet.models:
                    await self.queue(model).reap()
            except (RedisError, OSError) as error:
                logger.debug("lapsed jobs not looked for: %s", error)
            if self._directory.reachable:
                self._end_hopeless()

    async def drain(self, patience: float) -> None:
        """Take no new request; wait up to ``patience`` seconds for the answers in flight, then end them."""
        self.draining = True
        deadline = asyncio.get_running_loop().time() + patience
        while self._relay.answers() and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.05)
        for answer in self._relay.answers():
            answer.fail(Problem(kind=ProblemKind.SHUTTING_DOWN, message="This server was shut down before the end."))

    async def farewell(self) -> None:
        """Wait until the last cancellations are sent."""
        await asyncio.gather(*self._goodbyes, return_exceptions=True)

    def _jobs(self, request: ChatRequest) -> list[Job]:
        """Split a request: one job for each prompt and choice, each carrying only its own prompt."""
        sampling = msgspec.structs.replace(request.sampling, logprobs=needs_logprobs(request))
        parts = [
            msgspec.structs.replace(request, prompts=(prompt,), sampling=sampling) for prompt in request.prompts
        ] or [msgspec.structs.replace(request, sampling=sampling)]
        return [
            Job(id=uuid.uuid4().hex, reply_to=self._replica, request=part, choice=choice)
            for part in parts
            for choice in range(jobs_per_prompt(request))
        ]

    async def require_model(self, model: str) -> None:
        """Check that a worker serves ``model``. Raises :class:`RequestRefused` when none does."""
        fleet = self._directory.fleet
        if model not in fleet.serving():
            try:
                await self._directory.refresh()
            except (RedisError, OSError) as error:
                raise _store_unavailable() from error
            fleet = self._directory.fleet
        if model in fleet.serving():
            return
        if model in fleet.models:
            raise refuse(
                ProblemKind.NO_WORKER,
                f"No worker serves the model '{model}' at the moment. Please try again later.",
                retry_after=_RETRY_NO_WORKER,
            )
        raise refuse(
            ProblemKind.MODEL_NOT_FOUND, f"The model `{model}` does not exist or you do not have access to it."
        )

    def _end_hopeless(self) -> None:
        for answer in self._relay.answers():
            if self._directory.without_worker_for(answer.model) > self._settings.worker_grace:
                answer.fail(
                    Problem(
                        kind=ProblemKind.NO_WORKER,
                        message=f"The last worker for the model '{answer.model}' has gone. Please try again later.",
                        retry_after=_RETRY_NO_WORKER,
                    )
                )

    def _forget(self, answer: Answer) -> None:
        self._relay.close(answer)
        timer = self._timers.pop(answer, None)
        if timer is not None:
            timer.cancel()

    async def _cancel(self, answer: Answer) -> None:
        try:
            await self.queue(answer.model).cancel(answer.jobs)
        except (RedisError, OSError) as error:
            logger.warning("requests %s not cancelled, Redis does not answer: %s", answer.jobs, error)


_TIMED_OUT = Problem(
    kind=ProblemKind.TIMEOUT, message="The request took longer than this service allows and was ended."
)


def _store_unavailable() -> Exception:
    return refuse(
        ProblemKind.STORE_UNAVAILABLE,
        "The store behind this service can't be reached. Please try again.",
        retry_after=_RETRY_SOON,
    )
