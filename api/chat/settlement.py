"""Settlement: the end of what a replica holds of a request, its reservation.

What a request has used is settled in the store where its jobs end (``prelude.lua`` of the queue), whoever ends them.
"""

import asyncio

from api.chat.choices import jobs_per_prompt, parts_of
from api.chat.queues import JobQueues
from api.chat.stream import ResponseStream
from api.chat.usage import UsageRecorder
from api.limits import Limiter, Reservation
from shared.protocol.cost import prompt_cost
from shared.protocol.errors import ProblemKind
from shared.protocol.request import ChatRequest
from shared.redis.outage import when_reachable
from shared.runtime.tasks import BackgroundTasks

_POLL = 0.1
"""Seconds between two looks whether cancelled jobs have ended."""


class Settlement:
    """Replaces the tokens that a request has reserved by those that it is charged, in the background.

    Retries while the store is unreachable.
    """

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
        cancellation: asyncio.Task[frozenset[str]] | None,
    ) -> None:
        """Settle the ``reservation`` of a request, and note the reasoning of its ``account``.

        ``stream`` is its closed response stream, or None if its jobs were not queued. ``cancellation`` is the task that
        cancels its jobs, if any are cancelled.
        """
        queue = self._queues.of(request.model)

        async def settle() -> None:
            used = recorder.prompt_tokens + recorder.completion_tokens
            claimed = await _result(cancellation)
            if reservation is not None:
                if any(budget for owner in reservation.limited for budget in owner.budgets):
                    # Its reserved tokens are free when what it has used counts.
                    while await when_reachable(lambda: queue.any_unfinished(claimed)):  # noqa: ASYNC110 - the store is asked
                        await asyncio.sleep(_POLL)
                    await when_reachable(queue.book)
                if stream is not None:
                    used += _unreported(request, recorder, stream, claimed)
                await self._release(reservation, used)

        async def note() -> None:
            assert stream is not None
            tokens, job = recorder.reasoning_tokens, stream.jobs[0]
            await when_reachable(lambda: queue.note_reasoning(account, request.tier, tokens, job=job))

        if reservation is not None:
            self._tasks.run(settle(), "settle")
        if recorder.reasoning_tokens:
            self._tasks.run(note(), "note reasoning")

    async def _release(self, reservation: Reservation, used: int) -> None:
        """Charge the key and its team ``used`` tokens in their rate limits, and free their concurrency places."""
        await when_reachable(lambda: self._limiter.settle(reservation, used))


async def _result(cancellation: asyncio.Task[frozenset[str]] | None) -> frozenset[str]:
    """Return the jobs that workers had claimed when they were cancelled."""
    if cancellation is None:
        return frozenset()
    await asyncio.wait([cancellation])
    return frozenset() if cancellation.cancelled() or cancellation.exception() else cancellation.result()


def _unreported(request: ChatRequest, recorder: UsageRecorder, stream: ResponseStream, claimed: frozenset[str]) -> int:
    """Return the tokens to charge for prompts that workers had claimed, but of which none has reported the tokens.

    A worker reports the prompt tokens with the first event. If the client disconnects or the request times out before
    that, the estimate is charged; otherwise computed prompts would be free.
    """
    if stream.problem is not None and stream.problem.kind is not ProblemKind.TIMEOUT:
        return 0  # not caused by the client
    choices = jobs_per_prompt(request)
    prompts = {index // choices for index, job in enumerate(stream.jobs) if job in claimed}
    return sum(prompt_cost(parts_of(request)[prompt]) for prompt in prompts.difference(recorder.prompts))
