"""The service behind every chat route: submits a request's jobs, enforces deadlines, cancels, reaps and drains."""

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
from api.relay import Relay
from api.response_stream import ResponseStream
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
"""Seconds to wait for background cancellations at shutdown."""

_REAP_PAUSE = 0.02
"""Minimum interval in seconds between two passes of the reaper."""

_RETRY_BOUNDS = (0.1, 60.0)
"""Minimum and maximum ``Retry-After`` in seconds when the queue is full."""


class ChatService:
    """Owns the response streams of this replica, from submission to close."""

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
        self, request: ChatRequest, recorder: UsageRecorder, *, tenant: str = "", queue_timeout: float | None = None
    ) -> ResponseStream:
        """Queue the jobs of ``request`` and return its response stream, which the caller must :meth:`close`.

        ``request.model`` must be the model's own name (:meth:`own_name`). ``recorder`` records the request's usage.
        ``tenant`` is the tenant for fair queueing. ``queue_timeout`` is the maximum wait in seconds; by default it is
        the setting's. Raises :class:`RequestRefused` when the request cannot be accepted.
        """
        if self.draining:
            raise refuse(
                ProblemKind.SHUTTING_DOWN, "This server is shutting down. Please try again.", retry_after=_RETRY_SOON
            )
        self._require(request.model)
        jobs = self._jobs(request, tenant)
        stream = self._new_stream([job.id for job in jobs], request.model)
        stream.arriving = True
        recorder.stream = stream
        self._open(stream, queue_timeout)
        limit = self._queue_limit(request.model, len(jobs))
        try:
            await self.queue(request.model).enqueue(jobs, limit=limit, most_bytes=self._settings.max_choice_bytes)
        except JobsTooLarge:
            self._forget(stream)
            raise self._too_large(request, len(jobs)) from None
        except QueueFull as full:
            self._forget(stream)
            raise self._full(request.model, full.ahead, full.ahead + len(jobs) - limit) from None
        except (RedisError, OSError) as error:
            recorder.stream = None
            self.close(stream)
            raise store_unavailable() from error
        except asyncio.CancelledError:
            self.close(stream)
            raise
        stream.arriving = False
        return stream

    def follow(
        self, jobs: Sequence[str], model: str, *, age: float, queue_timeout: float | None = None
    ) -> ResponseStream:
        """Return the response stream of a request that another replica accepted ``age`` seconds ago.

        Used by completion recovery. Events are read from the journals of ``jobs``. The caller must :meth:`close` the
        stream.
        """
        stream = self._new_stream(list(jobs), model)
        stream.recoverable = True
        self._open(stream, queue_timeout, age)
        self._relay.catch_up(stream)
        return stream

    def close(self, stream: ResponseStream) -> None:
        """Stop relaying to ``stream`` and cancel its unfinished jobs, unless another replica takes them over."""
        self._forget(stream)
        if (stream.abandoned or not stream.over) and not self.leaves(stream):
            stream.cancellation = self._background_tasks.run(self._cancel(stream.model, stream.jobs), "cancel jobs")
        elif stream.recoverable and stream.ended:
            self._background_tasks.run(self._cancel(stream.model, stream.ended), "cancel jobs")

    def leaves(self, stream: ResponseStream) -> bool:
        """Whether another replica must finish and store ``stream``, because this one is shutting down."""
        return self._leaving and stream.recoverable and (stream.abandoned or not stream.over)

    def charge(self, request: ChatRequest, tenant: str, recorder: UsageRecorder) -> None:
        """Replace the queue's estimate of the request's tokens by its usage, in the background."""
        if not recorder.left_to_another:
            self._background_tasks.run(self._charge(request, tenant, recorder), "charge")

    def queue(self, model: str) -> JobQueue:
        """Return the queue of ``model``."""
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
        """Yield the number of jobs with long prompts that this replica enqueued, per model and route."""
        for model, queue in self._queues.items():
            for route, count in queue.routed.items():
                yield model, route, count

    async def watch(self) -> None:
        """Fail streams whose model has had no worker for longer than the grace period, until cancelled."""
        while True:
            await asyncio.sleep(next_tick(self._settings.lease / 3))
            if self._directory.reachable:
                self._fail_without_worker()

    async def reap(self) -> None:
        """Return jobs with expired leases to the queue, until cancelled.

        Runs three times per lease, and when the lease that ends first expires.
        """
        soonest = self._settings.lease
        while True:
            await asyncio.sleep(min(next_tick(self._settings.lease / 3), max(soonest, _REAP_PAUSE)))
            soonest = self._settings.lease
            try:
                for model in self._directory.fleet.models:
                    expired, end = await self.queue(model).reap()
                    if expired:
                        logger.warning("%d requests lost their worker and wait for another: %s", *summary(expired))
                    if end is not None:
                        soonest = min(soonest, end)
                outage.store.served("leases")
            except (RedisError, OSError) as error:
                outage.store.failed("leases", error)

    async def drain(self, grace: float) -> None:
        """Refuse new requests, wait up to ``grace`` seconds for open streams, then fail the remaining ones.

        Streams with a pending completion are left to another replica. Their clients get the error as well.
        """
        self.draining = True
        try:
            async with asyncio.timeout(grace):
                await self._relay.emptied()
        except TimeoutError:
            logger.warning("drain timed out; %d requests are aborted", len(self._relay.streams()))
        self._leaving = True
        for stream in self._relay.streams():
            stream.fail(Problem(kind=ProblemKind.SHUTTING_DOWN, message="This server was shut down before the end."))

    async def aclose(self) -> None:
        """Wait for background cancellations, at most :data:`_CLOSE_TIMEOUT` seconds.

        Jobs that are not cancelled end when their worker finds that the replica has no subscription.
        """
        await self._background_tasks.finish(_CLOSE_TIMEOUT)

    def _new_stream(self, jobs: list[str], model: str) -> ResponseStream:
        return ResponseStream(
            jobs, model, cancel=lambda job: self._background_tasks.run(self._cancel(model, [job]), "cancel a job")
        )

    def _queue_limit(self, model: str, jobs: int) -> int:
        """Return the queue bound for a request of ``jobs`` jobs: the lower of ``max_queue`` and ``max_wait`` at the
        current service rate. One number lets the enqueue script enforce both."""
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

    def _end_wait(self, stream: ResponseStream, rest: float) -> None:
        """Fail ``stream`` if no job was claimed, otherwise when it is not finished in ``rest`` seconds."""
        self._timers[stream] = asyncio.get_running_loop().call_later(rest, stream.fail, _TIMED_OUT)
        if all(choice_stream.attempt == 0 for choice_stream in stream.choices):
            self._background_tasks.run(self._end_wait_unless_claimed(stream), "end of a wait")

    async def _end_wait_unless_claimed(self, stream: ResponseStream) -> None:
        """Fail ``stream`` if no job was claimed. Retries while the store is unreachable."""
        while stream in self._timers:
            try:
                if not await self.queue(stream.model).any_claimed(stream.jobs):
                    stream.fail(_WAITED_OUT)
                return
            except (RedisError, OSError):
                await asyncio.sleep(_RETRY_SOON)

    def _jobs(self, request: ChatRequest, tenant: str) -> list[Job]:
        """Return one job per prompt and choice, each with its own prompt only.

        The jobs of a prompt share one request object; the queue stores it once (see ``packing.py``).
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
        """Resolve an alias to the model's own name. Refreshes the directory if no known worker serves the model.

        Raises :class:`RequestRefused` when the store is unreachable.
        """
        fleet = self._directory.fleet
        if fleet.own_name(name) not in fleet.serving():
            try:
                await self._directory.refresh()
            except (RedisError, OSError) as error:
                raise store_unavailable() from error
        return self._directory.fleet.own_name(name)

    async def require_model(self, name: str) -> None:
        """Raise :class:`RequestRefused` unless a worker serves the model or alias ``name``."""
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

    def _fail_without_worker(self) -> None:
        streams = self._relay.streams()
        models = {stream.model for stream in streams}
        grace = self._settings.worker_grace
        orphaned = {model for model in models if self._directory.without_worker_for(model) > grace}
        for stream in streams:
            if stream.model in orphaned:
                stream.fail(
                    Problem(
                        kind=ProblemKind.NO_WORKER,
                        message=f"The last worker for the model '{stream.model}' has gone. Please try again later.",
                        retry_after=_RETRY_NO_WORKER,
                    )
                )

    def _open(self, stream: ResponseStream, queue_timeout: float | None, age: float = 0.0) -> None:
        """Start relaying to ``stream``, accepted ``age`` seconds ago, and set the timer for its deadlines."""
        self._relay.open(stream)
        loop = asyncio.get_running_loop()
        wait, whole = queue_timeout or self._settings.queue_timeout, self._settings.request_timeout
        # One timer per stream at a time, because there are thousands of streams.
        if wait < whole:
            self._timers[stream] = loop.call_later(wait - age, self._end_wait, stream, whole - max(wait, age))
        else:
            self._timers[stream] = loop.call_later(whole - age, stream.fail, _TIMED_OUT)

    def _forget(self, stream: ResponseStream) -> None:
        self._relay.close(stream)
        timer = self._timers.pop(stream, None)
        if timer is not None:
            timer.cancel()

    async def _charge(self, request: ChatRequest, tenant: str, recorder: UsageRecorder) -> None:
        used = await tokens_to_charge(request, recorder)
        choices = jobs_per_prompt(request)
        estimate = choices * (prompt_cost(request) + answer_cost(request) * max(1, len(request.prompts)))
        try:
            await self.queue(request.model).charge(tenant, request.tier, used - estimate)
        except (RedisError, OSError) as error:
            logger.log(outage.store.level, "tokens of a request of tenant %s not charged: %s", tenant, error)

    async def _cancel(self, model: str, jobs: Sequence[str]) -> frozenset[str]:
        """Cancel the unfinished ``jobs``; return those that workers had claimed.

        Retries while the store is unreachable, because workers would go on computing.
        """
        while True:
            try:
                return await self.queue(model).cancel(jobs)
            except (RedisError, OSError) as error:
                logger.debug("jobs %s not cancelled, will retry: %s", jobs, error)
                await asyncio.sleep(_RETRY_SOON)


_TIMED_OUT = Problem(
    kind=ProblemKind.TIMEOUT, message="The request took longer than this service allows and was ended."
)

_WAITED_OUT = Problem(
    kind=ProblemKind.QUEUE_TIMEOUT,
    message="No worker was free for this request in the time that it may wait. Please try again later.",
    retry_after=_RETRY_NO_WORKER,
)
