"""Results of the jobs that do not generate: one event for each job, by which each kind of work answers."""

from collections.abc import Sequence
from typing import Any

from quart import request

from api.chat.exchange import ChatExchange, ChatServices
from api.http.exchange import HttpExchange
from shared.protocol.errors import ProblemKind, RequestRefused, refuse
from shared.protocol.events import Embedded, Failed, Rejected, Result, Started
from shared.protocol.request import ChatRequest

_SUBMISSIONS = 5
"""How often the jobs of vectors are submitted at most."""


async def results(services: ChatServices, exchange: HttpExchange, asked: ChatRequest) -> list[Any]:
    """Have workers run the jobs of ``asked`` within the limits of the client's key, and return their results in order.

    Each is an event of :data:`~shared.protocol.events.Result`, that of the kind of work. Raises
    :class:`RequestRefused`.
    """
    exchange.details = chat = ChatExchange.of(services, exchange, asked, request.headers)
    await exchange.enter(chat)
    return await _all(chat, submissions=1)


async def embedded(chat: ChatExchange) -> list[Embedded]:
    """Wait for the vectors of an accepted request. They are in no journal: those that were lost are computed again.

    Raises :class:`RequestRefused`.
    """
    return await _all(chat, submissions=_SUBMISSIONS)


async def _all(chat: ChatExchange, *, submissions: int) -> list[Any]:
    """Return the results of all jobs, in order. Jobs whose result is lost are submitted ``submissions`` times at most.

    Raises :class:`RequestRefused`.
    """
    found: dict[int, Result] = {}
    jobs = range(len(chat.stream.jobs))
    missing: Sequence[int] = jobs
    for again in range(submissions):
        if again:
            await chat.submit_again(missing)
        found |= await _collected(chat, missing)
        missing = [job for job in jobs if job not in found]
        if not missing:
            return [found[job] for job in jobs]
    chat.recorder.outcome = ProblemKind.LOST
    if chat.stream.problem is not None:
        raise RequestRefused(chat.stream.problem)
    raise refuse(ProblemKind.LOST, "The worker sent no result. Please send the request again.")


async def _collected(chat: ChatExchange, jobs: Sequence[int]) -> dict[int, Result]:
    """Return the results of ``jobs``, those in the stream, without those that were lost. Raises
    :class:`RequestRefused` for others that have failed."""
    found: dict[int, Result] = {}
    async for batch in chat.stream.batches():
        for index, event in batch:
            if isinstance(event, Result):
                found[jobs[index]] = event
                chat.recorder.outcome = "stop"
            elif isinstance(event, Started):
                chat.recorder.started(jobs[index], event)
            elif isinstance(event, Failed | Rejected) and event.problem.kind is not ProblemKind.LOST:
                chat.recorder.outcome = event.problem.kind
                raise RequestRefused(event.problem)
    return found
