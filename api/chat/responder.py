"""The response to an accepted chat request: encoded, whole or as a stream."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from functools import partial
from urllib.parse import quote

from quart import Response, request

from api.base.fair_thread import FairThread
from api.chat.builder import collect
from api.chat.exchange import ChatExchange
from api.chat.queue_events import HEADER, QueueEvents
from api.chat.writer import stream
from api.dialects.base.interface import Choice, Dialect, ResponseEncoder
from api.http.connection_extension import connection_extension
from api.http.exchange import HttpExchange, sees_fleet
from api.http.routes import json_response
from shared.protocol.events import Event, Started

WORKER_HEADER = "x-vinoqueue-worker"
"""Header of a request that asks for the ids of its workers (``true``), and of the response that names them."""

STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}

Writer = Callable[[bytes], bool]
"""Sends a piece of a stream immediately, or returns False."""


class Responder:
    """Accepts chat requests and responds to them."""

    def __init__(self, queue_events: QueueEvents, thread: FairThread) -> None:
        """``thread`` encodes large responses."""
        self._queue_events = queue_events
        self._thread = thread

    async def respond(self, exchange: HttpExchange, chat: ChatExchange) -> Response:
        """Accept the request of ``chat`` and respond to it, as a stream or as a whole.

        The HTTP status is sent after the first event from a worker. Raises :class:`RequestRefused`.
        """
        # A streamed response outlives this method. The HTTP exchange does not.
        exchange.details = chat
        await exchange.enter(chat)
        if chat.request.stream and request.headers.get(HEADER, "").lower() == "true":
            return stream_response(self._announced(exchange.dialect, chat, _writer()))
        encoder = _encoder(exchange.dialect, chat, await chat.stream.started())
        if chat.request.stream:
            response = stream_response(self._streamed(chat, encoder, _writer()))
        else:
            response = json_response(await self.whole(chat, encoder))
            response.timeout = None
        if request.headers.get(WORKER_HEADER, "").lower() == "true" and sees_fleet():
            response.headers[WORKER_HEADER] = quote(", ".join(chat.stream.workers), safe=" ,:/@+")
        return response

    async def whole(self, chat: ChatExchange, encoder: ResponseEncoder) -> bytes:
        """Wait for the end of an accepted request and return its encoded response, which is stored if that is wanted.

        Raises :class:`RequestRefused` if it fails.
        """
        choices = await collect(chat.stream, chat.request, chat.recorder)
        document = await self._encoded(chat, encoder, choices)
        await chat.store(document)
        return document

    def _streamed(
        self, chat: ChatExchange, encoder: ResponseEncoder, write: Writer | None
    ) -> AsyncGenerator[bytes, None]:
        """Return the encoded stream of an accepted request, which stores the response at its end if that is wanted."""

        async def store(choices: list[Choice]) -> None:
            await chat.store(await self._encoded(chat, encoder, choices))

        return stream(
            chat.stream,
            chat.request,
            encoder,
            chat.recorder,
            on_complete=store if chat.is_stored else None,
            write=write,
        )

    async def _encoded(self, chat: ChatExchange, encoder: ResponseEncoder, choices: Sequence[Choice]) -> bytes:
        """Return the encoded response. A large one is encoded outside of the event loop."""
        recorder = chat.recorder
        encode = partial(encoder.completion, choices, recorder.usage())
        return await self._thread.run(chat.owner, recorder.response_bytes, encode)

    async def _announced(self, dialect: Dialect, chat: ChatExchange, write: Writer | None) -> AsyncIterator[bytes]:
        """Yield queue events until the first event from a worker, then the stream."""
        async for comment in self._queue_events.until_started(chat.stream):
            yield comment
        async for piece in self._streamed(chat, _encoder(dialect, chat, await chat.stream.first()), write):
            yield piece


def stream_response(events: AsyncIterator[bytes]) -> Response:
    """Return a response of server-sent ``events``, which may last longer than the server's usual responses."""
    response = Response(events, headers=STREAM_HEADERS)
    response.timeout = None
    return response


def _encoder(dialect: Dialect, chat: ChatExchange, first: Event) -> ResponseEncoder:
    fingerprint = first.fingerprint if isinstance(first, Started) else ""
    return dialect.render(chat.request, response_id=chat.id, created=int(chat.accepted), fingerprint=fingerprint)


def _writer() -> Writer | None:
    """Return the function that writes directly to the connection of the current request, if its server has one."""
    connection = connection_extension(request)
    return connection["write_chunk"] if connection is not None else None
