"""The service behind every route: admit a request, queue its jobs, watch over its answer."""

import asyncio
import logging
import uuid
from collections.abc import Iterator, Sequence

import msgspec
from arq.connections import ArqRedis
from redis.exceptions import RedisError

from api.answers.charging import tokens_to_charge
from api.answers.selection import jobs_per_prompt, needs_logprobs
from api.answers.usage_recorder import UsageRecorder
from api.directory import Directory
from api.relay import Relay, ResponseStream
from shared.protocol.cost import answer_cost, prompt_cost
from shared.protocol.errors import Problem, ProblemKind, RequestRefused, refuse, store_unavailable
from shared.protocol.queue import JobQueue, JobsTooLarge, QueueFull, Route
from shared.protocol.request import ChatRequest, Job
from shared.redis import outage
from shared.runtime.logs import summary
from shared.runtime.settings import ApiSettings
from shared.runtime.tasks import BackgroundTasks
from shared.runtime.ticks import next_tick

logger = logging.getLogger(__name__)

_RETRY_SOON = 1.0
_RETRY_NO_WORKER = 5.0
_CLOSE_TIMEOUT = 3.0
"""Seconds that the last cancellations may take when the replica shuts down."""

_REAP_PAUSE = 0.02
"""Seconds that lie at least between two looks for lapsed jobs."""

_RETRY_BOUNDS = (0.1, 60.0)
"""Least and most seconds after which to come back to a full queue."""


class ChatService:
    """Admission, and the life of answers in this replica."""

    def __init__(
        self, redis: ArqRedis, relay: Relay, directory: Directory, replica: str, settings: ApiSettings
    ) -> None:
        self._redis = redis
        self._relay = relay
        self._directory = directory
        self._replica = replica
        self._settings = settings
        self._queues: dict[str, JobQueue] = {}
        self._background_tasks = BackgroundTasks()
        self._timers: dict[ResponseStream, asyncio.TimerHandle] = {}
        self._leaving = False
        self.draining = False

    async def submit(
        self, request: ChatRequest, tally: UsageRecorder, *, tenant: str = "", queue_timeout: float | None = None
    ) -> ResponseStream:
        """Accept ``request``: its jobs are queued when this returns, and the answer must be closed at its end.

        The request must have the model's own name (:meth:`own_name`).
        ``tally`` will count the answer. ``tenant`` is whom the queue counts it for, ``queue_timeout`` the seconds that
        it may wait, if not as long as the setting says. Raises :class:`RequestRefused` when it can't be accepted.
        """
        if self.draining:
            raise refuse(
                ProblemKind.SHUTTING_DOWN, "This server is shutting down. Please try again.", retry_after=_RETRY_SOON
            )
        self._require(request.model)
        jobs = self._jobs(request, tenant)
        answer = self._answer([job.id for job in jobs], request.model)
        answer.arriving = True
        tally.answer = answer
        self._open(answer, queue_timeout)
        limit = self._queue_limit(request.model, len(jobs))
        try:
            await self.queue(request.model).enqueue(jobs, limit=limit, most_bytes=self._settings.max_choice_bytes)
        except JobsTooLarge:
            self._forget(answer)
            raise self._too_large(request, len(jobs)) from None
        except QueueFull as full:
            self._forget(answer)
            raise self._full(request.model, full.ahead, full.ahead + len(jobs) - limit) from None
        except (RedisError, OSError) as error:
            tally.answer = None
            self.close(answer)
            raise store_unavailable() from error
        except asyncio.CancelledError:
            self.close(answer)
            raise
        answer.arriving = False
        return answer

    def follow(
        self, jobs: Sequence[str], model: str, *, age: float, queue_timeout: float | None = None
    ) -> ResponseStream:
        """Take up the answer to a request that another replica accepted ``age`` seconds ago and promised to store.

        It is read from the journals of its ``jobs``, and must be closed at its end.
        """
        answer = self._answer(list(jobs), model)
        answer.promised = True
        self._open(answer, queue_timeout, age)
        self._relay.catch_up(answer)
        return answer

    def close(self, answer: ResponseStream) -> None:
        """End an answer: nothing more is relayed, and jobs that are not over are cancelled, or left to others."""
        self._forget(answer)
        if (answer.abandoned or not answer.over) and not self.leaves(answer):
            answer.cancellation = self._background_tasks.run(self._cancel(answer.model, answer.jobs), "cancel jobs")
        elif answer.promised and answer.ended:
            self._background_tasks.run(self._cancel(answer.model, answer.ended), "cancel jobs")

    def leaves(self, answer: ResponseStream) -> bool:
        """Whether ``answer`` is left to another replica to finish and to store, because this one ends."""
        return self._leaving and answer.promised and (answer.abandoned or not answer.over)

    def charge(self, request: ChatRequest, tenant: str, tally: UsageRecorder) -> None:
        """Count what an accepted request of ``tenant`` took, in place of what the queue guessed; returns at once."""
        if not tally.left_to_another:
            self._background_tasks.run(self._charge(request, tenant, tally), "charge")

    def queue(self, model: str) -> JobQueue:
        """The queue of ``model``."""
        queue = self._queues.get(model)
        if queue is None:
            queue = self._queues[model] = JobQueue(
                self._redis,
                model,
                prefix_routing=self._settings.prefix_routing,
                lease_ms=int(self._settings.lease * 1000),
            )
        return queue

    def routed(self) -> Iterator[tuple[str, Route, int]]:
        """Yield for each model and route how many jobs with long prompts went that way from here."""
        for model, queue in self._queues.items():
            for route, count in queue.routed.items():
                yield model, route, count

    async def watch(self) -> None:
        """Until cancelled: end answers whose model has lost all workers."""
        while True:
            await asyncio.sleep(next_tick(self._settings.lease / 3))
            if self._directory.reachable:
                self._end_hopeless()

    async def reap(self) -> None:
        """Until cancelled: put lapsed jobs back, three times a lease and whenever one has not been renewed in time."""
        soonest = self._settings.lease
        while True:
            await asyncio.sleep(min(next_tick(self._settings.lease / 3), max(soonest, _REAP_PAUSE)))
            soonest = self._settings.lease
            try:
                for model in self._directory.fleet.models:
                    lapsed, end = await self.queue(model).reap()
                    if lapsed:
                        logger.warning("%d requests lost their worker and wait for another: %s", *summary(lapsed))
                    if end is not None:
                        soonest = min(soonest, end)
                outage.store.served("leases")
            except (RedisError, OSError) as error:
                outage.store.failed("leases", error)

    async def drain(self, patience: float) -> None:
        """Take no new request; wait up to ``patience`` seconds for the answers in flight, then end them.

        Those that are to be stored are left to another replica, though their clients are not told any more of them.
        """
        self.draining = True
        try:
            async with asyncio.timeout(patience):
                await self._relay.emptied()
        except TimeoutError:
            logger.warning("%d answers are ended before their time", len(self._relay.answers()))
        self._leaving = True
        for answer in self._relay.answers():
            answer.fail(Problem(kind=ProblemKind.SHUTTING_DOWN, message="This server was shut down before the end."))

    async def aclose(self) -> None:
        """Wait until the last cancellations are sent, though not for a store that is away: workers notice then that
        nobody listens."""
        await self._background_tasks.finish(_CLOSE_TIMEOUT)

    def _answer(self, jobs: list[str], model: str) -> ResponseStream:
        return ResponseStream(
            jobs, model, cancel=lambda job: self._background_tasks.run(self._cancel(model, [job]), "cancel a job")
        )

    def _queue_limit(self, model: str, jobs: int) -> int:
        """How many jobs may wait when ``jobs`` new ones have come, at the rate at which the workers get on.

        As bounds of length and of time are one number, the queue's script can keep both.
        """
        rate = self._directory.service_rate(model)
        if rate is None:
            return self._settings.max_queue
        return min(self._settings.max_queue, max(jobs, int(rate * self._settings.max_wait)))

    def _full(self, model: str, ahead: int, excess: int) -> RequestRefused:
        rate = self._directory.service_rate(model)
        least, most = _RETRY_BOUNDS
        return refuse(
            ProblemKind.QUEUE_FULL,
            f"The queue of model '{model}' is full ({ahead} requests wait). Please try again later.",
            retry_after=min(most, max(least, excess / rate if rate else _RETRY_SOON)),
        )

    def _too_large(self, request: ChatRequest, jobs: int) -> RequestRefused:
        return refuse(
            ProblemKind.TOO_LARGE,
            f"This request asks for {jobs} texts (prompts times choices), and its size times their number is more than "
            f"the {self._settings.max_choice_bytes} bytes that are allowed. Shorten the prompt, ask for fewer choices, "
            "or send several requests.",
            param="n" if len(request.prompts) < 2 else "prompt",
        )

    def _end_wait(self, answer: ResponseStream, rest: float) -> None:
        """End ``answer`` if no worker has taken it, else in ``rest`` seconds if it is not over by then."""
        self._timers[answer] = asyncio.get_running_loop().call_later(rest, answer.fail, _TIMED_OUT)
        if all(choice_stream.attempt == 0 for choice_stream in answer.choices):
            self._background_tasks.run(self._end_wait_unless_claimed(answer), "end of a wait")

    async def _end_wait_unless_claimed(self, answer: ResponseStream) -> None:
        """End ``answer`` if no worker has taken it. While Redis is away, its workers may well be at it."""
        while answer in self._timers:
            try:
                if not await self.queue(answer.model).any_claimed(answer.jobs):
                    answer.fail(_WAITED_OUT)
                return
            except (RedisError, OSError):
                await asyncio.sleep(_RETRY_SOON)

    def _jobs(self, request: ChatRequest, tenant: str) -> list[Job]:
        """Split a request: one job for each prompt and choice, each with only its own prompt.

        The choices of a prompt share one request object, by which the queue knows to store it once.
        """
        sampling = msgspec.structs.replace(request.sampling, logprobs=needs_logprobs(request))
        parts = [
            msgspec.structs.replace(request, prompts=(prompt,), sampling=sampling) for prompt in request.prompts
        ] or [msgspec.structs.replace(request, sampling=sampling)]
        choices = jobs_per_prompt(request)
        jobs = []
        for part in parts:
            name = uuid.uuid4().hex
            names = [f"{name}:{choice}" for choice in range(choices)] if choices > 1 else [name]
            jobs += [
                Job(id=job, reply_to=self._replica, request=part, choice=choice, tenant=tenant)
                for choice, job in enumerate(names)
            ]
        return jobs

    async def own_name(self, name: str) -> str:
        """Return the own name of the model that clients call ``name``, looking again if no worker is known to serve it.

        Raises :class:`RequestRefused` when the store can't be reached.
        """
        fleet = self._directory.fleet
        if fleet.own_name(name) not in fleet.serving():
            try:
                await self._directory.refresh()
            except (RedisError, OSError) as error:
                raise store_unavailable() from error
        return self._directory.fleet.own_name(name)

    async def require_model(self, name: str) -> None:
        """Check that a worker serves the model that clients call ``name``. Raises :class:`RequestRefused`."""
        self._require(await self.own_name(name))

    def _require(self, model: str) -> None:
        fleet = self._directory.fleet
        if model in fleet.serving():
            return
        if fleet.loading(model):
            raise refuse(
                ProblemKind.NO_WORKER,
                f"The model '{model}' is being loaded. Please try again later.",
                retry_after=_RETRY_NO_WORKER,
            )
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
        answers = self._relay.answers()
        models = {answer.model for answer in answers}
        grace = self._settings.worker_grace
        hopeless = {model for model in models if self._directory.without_worker_for(model) > grace}
        for answer in answers:
            if answer.model in hopeless:
                answer.fail(
                    Problem(
                        kind=ProblemKind.NO_WORKER,
                        message=f"The last worker for the model '{answer.model}' has gone. Please try again later.",
                        retry_after=_RETRY_NO_WORKER,
                    )
                )

    def _open(self, answer: ResponseStream, queue_timeout: float | None, age: float = 0.0) -> None:
        """Relay to ``answer``, whose request came ``age`` seconds ago, and end it when it takes too long."""
        self._relay.open(answer)
        loop = asyncio.get_running_loop()
        wait, whole = queue_timeout or self._settings.queue_timeout, self._settings.request_timeout
        # One timer at a time: thousands of streams have one each.
        if wait < whole:
            self._timers[answer] = loop.call_later(wait - age, self._end_wait, answer, whole - max(wait, age))
        else:
            self._timers[answer] = loop.call_later(whole - age, answer.fail, _TIMED_OUT)

    def _forget(self, answer: ResponseStream) -> None:
        self._relay.close(answer)
        timer = self._timers.pop(answer, None)
        if timer is not None:
            timer.cancel()

    async def _charge(self, request: ChatRequest, tenant: str, tally: UsageRecorder) -> None:
        used = await tokens_to_charge(request, tally)
        texts = jobs_per_prompt(request)
        guessed = texts * (prompt_cost(request) + answer_cost(request) * max(1, len(request.prompts)))
        try:
            await self.queue(request.model).charge(tenant, request.tier, used - guessed)
        except (RedisError, OSError) as error:
            logger.log(outage.store.level, "the tokens of a request of %s are not charged: %s", tenant, error)

    async def _cancel(self, model: str, jobs: Sequence[str]) -> frozenset[str]:
        """Cancel ``jobs``, as far as they are not over; return those that workers had.

        An outage is waited out: the workers would compute for nobody.
        """
        while True:
            try:
                return await self.queue(model).cancel(jobs)
            except (RedisError, OSError) as error:
                logger.debug("requests %s are not cancelled yet: %s", jobs, error)
                await asyncio.sleep(_RETRY_SOON)


_TIMED_OUT = Problem(
    kind=ProblemKind.TIMEOUT, message="The request took longer than this service allows and was ended."
)

_WAITED_OUT = Problem(
    kind=ProblemKind.QUEUE_TIMEOUT,
    message="No worker was free for this request in the time that it may wait. Please try again later.",
    retry_after=_RETRY_NO_WORKER,
)
