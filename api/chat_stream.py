"""The encoded stream of an accepted chat request."""

from collections.abc import AsyncGenerator, Callable

from api.answers.writing import stream
from api.chat_exchange import ChatExchange
from api.dialects.interface import Choice, ResponseEncoder

Writer = Callable[[bytes], bool]
"""Sends a piece of a stream immediately, or returns False."""


def streamed(chat: ChatExchange, encoder: ResponseEncoder, write: Writer | None) -> AsyncGenerator[bytes, None]:
    """Return the encoded stream of an accepted request, which stores the response at its end if that is wanted."""

    async def store(choices: list[Choice]) -> None:
        await chat.store(encoder.completion(choices, chat.recorder.usage()))

    return stream(
        chat.stream,
        chat.request,
        encoder,
        chat.recorder,
        on_complete=store if chat.is_stored else None,
        write=write,
    )
