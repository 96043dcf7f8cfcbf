"""Settlement: what an ended request is charged, in rate limits and in its tenant's fair-queueing share."""

import asyncio
import logging

from redis.exceptions import RedisError

from api.chat.choices import jobs_per_prompt, parts_of
from api.chat.queues import JobQueues
from api.chat.stream import ResponseStream
from api.chat.usage import UsageRecorder
from api.limits import Limiter, Reservation
from shared.protocol.cost import prompt_cost, response_cost
from shared.protocol.errors import ProblemKind
from shared.protocol.queue import Cancelled
from shared.protocol.request import ChatRequest
from shared.protocol.usage import UsageCounts
from shared.redis import outage
from shared.runtime.tasks import BackgroundTasks

logger = logging.getLogger(__name__)


class Settlement:
    """Replaces the tokens that a request was estimated to need by those that it is charged, in the background."""

    def __init__(self, limiter: Limiter, queues: JobQueues, tasks: BackgroundTasks) -> None:
        self._limiter = limiter
        self._queues = queues
        self._tasks = tasks

    def cancel(self, reservation: Reservation) -> None:
        """Settle a reservation that the script may have made, although its caller was cancelled."""
        self._tasks.run(self._release(reservation, reservation.tokens), "settle")

    def settle(
        self,
        request: ChatRequest,
        account: str,
        reservation: Reservation | None,
        recorder: UsageRecorder,
        stream: ResponseStream | None,
        cancellation: asyncio.Task[Cancelled] | None,
    ) -> None:
        """Settle a request: correct its ``account``'s share of the queue, and the ``reservation`` in its limits.

        ``stream`` is its closed response stream, or None if its jobs were not queued. ``cancellation`` is the task that
        cancels its jobs, if any are cancelled.
        """

        async def settle() -> None:
            used = recorder.prompt_tokens + recorder.completion_tokens
            uncounted = UsageCounts(reasoning_tokens=recorder.reasoning_tokens)
            if stream is not None and cancellation is not None:
                cancelled = await _result(cancellation)
                used += _unreported(request, recorder, stream, cancelled)
                uncounted += _uncounted(request, recorder, stream, cancelled)
            try:
                if reservation is not None and any(budget for owner in reservation.limited for budget in owner.budgets):
                    await self._book(request.model)  # before its reserved tokens are free
                await self._release(reservation, used)
            finally:
                if stream is not None and stream.is_queued:
                    excess = used - _estimate(request) if account else 0  # Without keys, in order of arrival.
                    await self._charge(request, account, excess, stream.jobs[0], uncounted)

        if account or recorder.reasoning_tokens or cancellation is not None:
            self._tasks.run(settle(), "settle")

    async def _book(self, model: str) -> None:
        """Count what ended requests for ``model`` have used."""
        try:
            await self._queues.of(model).book()
        except (RedisError, OSError) as error:
            logger.log(outage.store.level, "usage of %s not counted yet: %s", model, error)

    async def _charge(self, request: ChatRequest, account: str, excess: int, job: str, used: UsageCounts) -> None:
        """Charge ``excess`` tokens beyond the estimate in fair queueing, and count what was ``used``."""
        queue = self._queues.of(request.model)
        try:
            await queue.charge(account, request.tier, excess, job=job, used=used)
        except (RedisError, OSError) as error:
            logger.log(outage.store.level, "tokens of a request of %s not charged: %s", account, error)

    async def _release(self, reservation: Reservation | None, used: int) -> None:
        """Charge the key and its team ``used`` tokens in their rate limits, and free their concurrency places."""
        if reservation is None:
            return
        try:
            await self._limiter.settle(reservation, used)
        except (RedisError, OSError) as error:
            logger.log(outage.store.level, "reservation of key %s not settled: %s", reservation.key.id, error)


def _estimate(request: ChatRequest) -> int:
    """Return the tokens by which the request's jobs were queued."""
    return jobs_per_prompt(request) * (prompt_cost(request) + response_cost(request) * max(1, len(request.prompts)))


async def _result(cancellation: asyncio.Task[Cancelled]) -> Cancelled:
    await asyncio.wait([cancellation])
    return Cancelled() if cancellation.cancelled() or cancellation.exception() else cancellation.result()


def _uncounted(
    request: ChatRequest, recorder: UsageRecorder, stream: ResponseStream, cancelled: Cancelled
) -> UsageCounts:
    """Return what jobs have used that were cancelled while they waited for another attempt, as a worker counts it."""
    used, choices = UsageCounts(), jobs_per_prompt(request)
    for index, choice in enumerate(stream.choices):
        if choice.job in cancelled.requeued:
            prompt = 0 if index % choices else recorder.text_tokens.get(index // choices, 0)
            used += UsageCounts(requests=int(not index), prompt_tokens=prompt, completion_tokens=choice.position)
    return used


def _unreported(request: ChatRequest, recorder: UsageRecorder, stream: ResponseStream, cancelled: Cancelled) -> int:
    """Return the tokens to charge for prompts that workers had claimed, but of which none has reported the tokens.

    A worker reports the prompt tokens with the first event. If the client disconnects or the request times out before
    that, the estimate is charged; otherwise computed prompts would be free.
    """
    if stream.problem is not None and stream.problem.kind is not ProblemKind.TIMEOUT:
        return 0  # not caused by the client
    choices = jobs_per_prompt(request)
    prompts = {index // choices for index, job in enumerate(stream.jobs) if job in cancelled.claimed}
    return sum(_prompt_cost(request, prompt) for prompt in prompts.difference(recorder.prompts))


def _prompt_cost(request: ChatRequest, prompt: int) -> int:
    return prompt_cost(parts_of(request)[prompt])
