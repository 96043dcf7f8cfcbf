"""Background responses: generated without their clients."""

import asyncio

from api import chat_span
from api.chat_exchange import ChatExchange
from api.draining import Draining
from api.responses.ending import run_to_end

_RETRY = 1.0
"""Seconds between two attempts to store a response."""


async def run_in_background(chat: ChatExchange, draining: Draining) -> None:
    """Wait for the end of the entered ``chat``, store the response, and leave the exchange.

    At shutdown, the response is left to another replica.
    """
    try:
        document = await run_to_end(
            chat.stream, chat.request, chat.recorder, answer_id=chat.id, created=int(chat.accepted)
        )
        while not draining.leaves(chat.stream):
            if await chat.store(document):
                return
            await asyncio.sleep(_RETRY)
    finally:
        await chat.__aexit__(None, None, None)
        chat_span.end(chat.span, chat.recorder)
