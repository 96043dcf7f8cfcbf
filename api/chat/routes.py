"""Chats: a request is read and parsed by its dialect, accepted, and answered whole or as a stream. And requests that
workers answer with results, such as tokens."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from functools import partial
from typing import TypeVar
from urllib.parse import quote

from quart import Response, request
from quart import request as http_request

from api.chat.exchange import ChatExchange, ChatServices
from api.chat.queue_events import HEADER, QueueEvents
from api.chat.results import embedded, results
from api.chat.writer import collect, stream
from api.dialects import ROUTES
from api.dialects.base.body import decode_object
from api.dialects.base.interface import EVENT_STREAM, PING, Choice, Dialect, MessagesMissing, ResponseEncoder
from api.dialects.base.lists import dump
from api.fairness import FairPlaces, FairThread
from api.http.bodies import LARGE_BODIES, LARGE_BODIES_OF_TENANT, BodyParser, check_body_size
from api.http.exchange import HttpExchange, connection_extension, current_exchange, is_admin, key_owner
from api.http.routes import json_response, serving
from api.models.directory import Directory
from shared.protocol.events import Event, Started
from shared.protocol.request import ChatRequest, Embed
from shared.runtime.settings import ApiSettings

_Parsed = TypeVar("_Parsed")


class RequestBodies:
    def __init__(self, parser: BodyParser, directory: Directory, settings: ApiSettings) -> None:
        self._parser = parser
        self._directory = directory
        self._settings = settings
        self._places = FairPlaces(LARGE_BODIES, share=LARGE_BODIES_OF_TENANT)
        """The places of bodies larger than ``max_body`` (see :mod:`api.http.bodies`)."""

    async def read(self, parse: Callable[[bytes], _Parsed]) -> tuple[_Parsed, int]:
        """Read the body of the current HTTP request; return what ``parse`` makes of it, and its size in bytes.

        It may be large, so nothing refers to it afterwards. Raises :class:`RequestRefused`.
        """
        tenant, untyped = key_owner(), current_exchange().dialect.untyped
        place = self._places.of(tenant) if self._directory.fleet.reads_images() else None
        async with self._parser.receive(request, tenant, place, untyped=untyped) as body:
            size = len(body)
            try:
                return await self._parser.run(tenant, size, partial(parse, body)), size
            except MessagesMissing as missing:
                await self._directory.require(missing.model, current_exchange().key)
                raise

    def check(self, parsed: ChatRequest, size: int) -> None:
        """Raise :class:`RequestRefused` if the body of a request may not have ``size`` bytes."""
        check_body_size(size, parsed, self._settings.max_body)


WORKER_HEADER = "x-vinoqueue-worker"
"""Header of a request that asks for the ids of its workers (``true``), and of the response that names them."""


class Responder:
    def __init__(self, queue_events: QueueEvents, thread: FairThread, *, first_byte_after: float) -> None:
        """``thread`` encodes large responses. ``first_byte_after`` is in seconds from the start of a request."""
        self._queue_events = queue_events
        self._thread = thread
        self._first_byte_after = first_byte_after

    async def respond(self, exchange: HttpExchange, chat: ChatExchange) -> Response:
        """Accept the request of ``chat`` and respond to it, as a stream or as a whole.

        The HTTP status is sent after the first event from a worker; that of a stream, after ``first_byte_after``
        seconds at the latest. Raises :class:`RequestRefused`.
        """
        # A streamed response outlives this method. The HTTP exchange does not.
        exchange.details = chat
        await exchange.enter(chat)
        dialect = exchange.dialect
        announced = wants_queue_events() and dialect.comments
        if chat.request.response.stream and (announced or not await self._starts_in_time(exchange, chat)):
            ping = _encoder(dialect, chat, None).ping
            pieces = self._announced(dialect, chat, b"" if announced else ping)
            return stream_response(pieces, ping, dialect.stream_type)
        embeds = isinstance(chat.request.work, Embed)
        encoder = _encoder(dialect, chat, None if embeds else await chat.stream.started())
        if chat.request.response.stream:
            response = stream_response(self._streamed(chat, encoder), encoder.ping, dialect.stream_type)
        else:
            response = json_response(await self.whole(chat, encoder))
            response.timeout = None
        if request.headers.get(WORKER_HEADER, "").lower() == "true" and is_admin():
            response.headers[WORKER_HEADER] = quote(", ".join(chat.stream.workers), safe=" ,:/@+")
        return response

    async def whole(self, chat: ChatExchange, encoder: ResponseEncoder) -> bytes:
        """Wait for the end of an accepted request and return its encoded response, which is stored if that is wanted.

        Raises :class:`RequestRefused` if it fails.
        """
        if isinstance(chat.request.work, Embed):
            return await self._vectors(chat, encoder)
        choices = await collect(chat.stream, chat.request, chat.recorder)
        document = await self._encoded(chat, encoder, choices)
        await chat.store(document)
        return document

    def _streamed(self, chat: ChatExchange, encoder: ResponseEncoder) -> AsyncGenerator[bytes, None]:
        """Return the encoded stream of an accepted request, which stores the response at its end if that is wanted."""

        async def store(choices: list[Choice]) -> None:
            await chat.store(await self._encoded(chat, encoder, choices))

        return stream(
            chat.stream,
            chat.request,
            encoder,
            chat.recorder,
            on_complete=store if chat.is_stored else None,
        )

    async def _encoded(self, chat: ChatExchange, encoder: ResponseEncoder, choices: Sequence[Choice]) -> bytes:
        """Return the encoded response. A large one is encoded outside of the event loop."""
        recorder = chat.recorder
        encode = partial(encoder.completion, choices, recorder.usage())
        return await self._thread.run(chat.owner, recorder.response_bytes, encode)

    async def _vectors(self, chat: ChatExchange, encoder: ResponseEncoder) -> bytes:
        found = await embedded(chat)
        size = sum(len(one.vectors) for one in found) * (1 if chat.request.response.base64 else _JSON_FACTOR)
        return await self._thread.run(chat.owner, size, partial(encoder.vectors, found, chat.recorder.usage()))

    async def _starts_in_time(self, exchange: HttpExchange, chat: ChatExchange) -> bool:
        """Wait for the first event from a worker, but not so long that a proxy gives up. Return whether it came."""
        try:
            async with asyncio.timeout(exchange.started_at + self._first_byte_after - time.monotonic()):
                await chat.stream.first()
        except TimeoutError:
            return False
        return True

    async def _announced(self, dialect: Dialect, chat: ChatExchange, ping: bytes) -> AsyncIterator[bytes]:
        """Yield ``ping``, or queue events without it, until the first event from a worker; then the stream."""
        if ping:
            yield ping
        else:
            async for comment in self._queue_events.until_started(chat.stream):
                yield comment
        async for piece in self._streamed(chat, _encoder(dialect, chat, await chat.stream.first())):
            yield piece


_JSON_FACTOR = 5
"""Ratio of a vector's size in JSON to its size in memory."""


def wants_queue_events() -> bool:
    """Return whether the client of the current request asks for queue events."""
    return request.headers.get(HEADER, "").lower() == "true"


def stream_response(events: AsyncIterator[bytes], ping: bytes = PING, content_type: str = EVENT_STREAM) -> Response:
    """Return a response of whole ``events``, which may last longer than the server's usual responses.

    ``ping`` is sent while there are none, if the server can do that.
    """
    if (connection := connection_extension(request)) is not None:
        connection["ping"](ping)
    response = Response(events, content_type=f"{content_type}; charset=utf-8")
    response.headers.update({"cache-control": "no-cache", "x-accel-buffering": "no"})
    response.timeout = None
    return response


def _encoder(dialect: Dialect, chat: ChatExchange, first: Event | None) -> ResponseEncoder:
    fingerprint = first.fingerprint if isinstance(first, Started) else ""
    return dialect.render(chat.request, response_id=chat.id, created=int(chat.accepted), fingerprint=fingerprint)


class ChatHandler:
    def __init__(self, bodies: RequestBodies, services: ChatServices, responder: Responder) -> None:
        self._bodies = bodies
        self._services = services
        self._responder = responder

    @serving(*(route for route in ROUTES if route.serves in ("chats", "embeddings")))
    async def create(self) -> Response:
        """Create a completion, streamed or not."""
        exchange = current_exchange()
        (request, messages), size = await self._bodies.read(partial(translated, exchange.dialect))
        self._bodies.check(request, size)
        chat = ChatExchange.of(self._services, exchange, request, http_request.headers, messages=messages)
        return await self._responder.respond(exchange, chat)


def translated(dialect: Dialect, body: bytes) -> tuple[ChatRequest, bytes]:
    """Return the request in ``body`` and, if its response is to be stored, its messages, a JSON array."""
    request = dialect.parse(body)
    return request, dump(decode_object(body)["messages"]) if request.store else b""


class ResultHandler:
    """Requests that generate nothing: a worker answers each job with one result, such as the tokens of a text."""

    def __init__(self, services: ChatServices, parser: BodyParser) -> None:
        self._services = services
        self._parser = parser

    @serving(*(route for route in ROUTES if route.serves == "results"))
    async def compute(self) -> Response:
        """Compute results."""
        exchange = current_exchange()
        parse = exchange.dialect.parse
        asked = parse(b"") if request.method == "GET" else await self._parser.read(request, key_owner(), parse)
        return json_response(exchange.dialect.answer(asked, await results(self._services, exchange, asked)))
