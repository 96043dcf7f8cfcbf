"""Background responses: generated without their clients."""

import asyncio

from api.chat import span as chat_span
from api.chat.exchange import ChatExchange
from api.responses.documents import run_to_end
from api.stored.record import StoredResponse
from shared.protocol.errors import RequestRefused
from shared.runtime.tasks import BackgroundTasks

_RETRY = 1.0
"""Seconds between two attempts to store a response."""


async def start(chat: ChatExchange, tasks: BackgroundTasks) -> StoredResponse:
    """Accept the background request of ``chat`` and return its record. The response goes on in ``tasks``.

    Raises :class:`RequestRefused`.
    """
    try:
        await chat.__aenter__()
    except BaseException as error:
        if isinstance(error, RequestRefused):
            chat.recorder.outcome = error.problem.kind
        chat_span.end(chat.span, chat.recorder)
        raise
    tasks.run(_run(chat), "background response")
    return chat.record


async def _run(chat: ChatExchange) -> None:
    """Wait for the end of the entered ``chat``, store the response, and leave the exchange.

    At shutdown, the response goes on without this replica.
    """
    try:
        document = await run_to_end(
            chat.stream, chat.request, chat.recorder, response_id=chat.id, created=chat.record.created
        )
        while not chat.stream.left:
            if await chat.store(document):
                break
            await asyncio.sleep(_RETRY)
    finally:
        await chat.__aexit__(None, None, None)
        chat_span.end(chat.span, chat.recorder)
