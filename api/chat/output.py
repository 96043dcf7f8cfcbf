"""The encoded response of an accepted chat request, whole or as a stream."""

from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial

from api.base.fair_thread import FairThread
from api.chat.builder import collect
from api.chat.exchange import ChatExchange
from api.chat.writer import stream
from api.dialects.base.interface import Choice, ResponseEncoder

Writer = Callable[[bytes], bool]
"""Sends a piece of a stream immediately, or returns False."""


async def whole(chat: ChatExchange, encoder: ResponseEncoder, thread: FairThread) -> bytes:
    """Wait for the end of an accepted request and return its encoded response, which is stored if that is wanted.

    Raises :class:`RequestRefused` if it fails.
    """
    choices = await collect(chat.stream, chat.request, chat.recorder)
    document = await _encoded(chat, encoder, choices, thread)
    await chat.store(document)
    return document


def streamed(
    chat: ChatExchange, encoder: ResponseEncoder, thread: FairThread, write: Writer | None
) -> AsyncGenerator[bytes, None]:
    """Return the encoded stream of an accepted request, which stores the response at its end if that is wanted."""

    async def store(choices: list[Choice]) -> None:
        await chat.store(await _encoded(chat, encoder, choices, thread))

    return stream(
        chat.stream,
        chat.request,
        encoder,
        chat.recorder,
        on_complete=store if chat.is_stored else None,
        write=write,
    )


async def _encoded(
    chat: ChatExchange, encoder: ResponseEncoder, choices: Sequence[Choice], thread: FairThread
) -> bytes:
    """Return the encoded response. A large one is encoded outside of the event loop."""
    recorder = chat.recorder
    return await thread.run(chat.owner, recorder.answer_bytes, partial(encoder.completion, choices, recorder.usage()))
