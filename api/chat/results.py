"""Results of the jobs that do not generate: one event for each job, by which each kind of work answers."""

from typing import TypeVar

from quart import request

from api.chat.exchange import ChatExchange, ChatServices
from api.http.exchange import HttpExchange
from shared.protocol.errors import ProblemKind, RequestRefused, refuse
from shared.protocol.events import Failed, Rejected, Result
from shared.protocol.request import ChatRequest

_Result = TypeVar("_Result", bound=Result)


async def results(
    services: ChatServices, exchange: HttpExchange, asked: ChatRequest, form: type[_Result]
) -> list[_Result]:
    """Have workers run the jobs of ``asked`` within the limits of the client's key, and return their results in order.

    ``form`` is the kind's event. Raises :class:`RequestRefused`.
    """
    exchange.details = chat = ChatExchange.of(services, exchange, asked, request.headers)
    await exchange.enter(chat)
    found: dict[int, _Result] = {}
    async for batch in chat.stream.batches():
        for index, event in batch:
            if isinstance(event, form):
                found[index] = event
                chat.recorder.outcome = "stop"
            elif isinstance(event, Failed | Rejected):
                chat.recorder.outcome = event.problem.kind
                raise RequestRefused(event.problem)
    if len(found) < len(chat.stream.jobs):
        raise refuse(ProblemKind.LOST, "The worker sent no result. Please send the request again.")
    return [found[index] for index in sorted(found)]
