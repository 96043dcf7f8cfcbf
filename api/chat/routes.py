"""Chat routes: parse the body by the dialect, accept the request, encode the response stream."""

from collections.abc import AsyncIterator
from functools import partial
from urllib.parse import quote

from quart import Blueprint, Response, request

from api.chat.exchange import ChatExchange
from api.chat.output import Writer, streamed, whole
from api.chat.queue_events import HEADER
from api.chat.response_size import check_answer
from api.dialects.base.interface import Dialect, MessagesMissing, ResponseEncoder
from api.dialects.openai.stored import sent_messages
from api.http.access import key_owner, sees_fleet
from api.http.bodies import check_body_size, media_body
from api.http.connection_extension import connection_extension
from api.http.exchange import HttpExchange, current_exchange
from api.http.json_response import json_response
from api.replica import Replica, current_replica
from shared.protocol.events import Event, Started
from shared.protocol.request import ChatRequest

blueprint = Blueprint("chat", __name__)

WORKER_HEADER = "x-vinoqueue-worker"
"""Header of a request that asks for the ids of its workers (``true``), and of the response that names them."""

STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}


@blueprint.post("/v1/chat/completions")
@blueprint.post("/v1/completions")
@blueprint.post("/v1/messages")
@blueprint.post("/v3/chat/completions")
@blueprint.post("/v3/completions")
@blueprint.post("/v3/responses")
@blueprint.post("/chat/completions")
@blueprint.post("/models/chat/completions")
async def chat_completions() -> Response:
    """Create a chat completion or a plain completion. The HTTP status is sent after the first event from a worker."""
    replica, exchange = current_replica(), current_exchange()
    exchange.chat = chat = await _parsed(replica, exchange)
    return await respond(replica, exchange, chat)


async def respond(replica: Replica, exchange: HttpExchange, chat: ChatExchange) -> Response:
    """Accept the request of ``chat`` and answer it, as a stream or as a whole."""
    # A streamed response outlives this function. The HTTP exchange does not.
    await exchange.enter(chat)
    if chat.request.stream and request.headers.get(HEADER, "").lower() == "true":
        response = Response(_announced(replica, exchange.dialect, chat, _writer()), headers=STREAM_HEADERS)
        response.timeout = None
        return response
    encoder = _encoder(exchange.dialect, chat, await chat.stream.started())
    if chat.request.stream:
        response = Response(streamed(chat, encoder, replica.thread, _writer()), headers=STREAM_HEADERS)
    else:
        response = json_response(await whole(chat, encoder, replica.thread))
    if request.headers.get(WORKER_HEADER, "").lower() == "true" and sees_fleet():
        response.headers[WORKER_HEADER] = quote(", ".join(chat.stream.workers), safe=" ,:/@+")
    response.timeout = None
    return response


async def _parsed(replica: Replica, exchange: HttpExchange) -> ChatExchange:
    """Read and parse the body. It may be large, so nothing refers to it afterwards."""
    settings = replica.settings
    tenant = key_owner()
    place = replica.large_bodies.of(tenant) if replica.directory.fleet.reads_images() else None
    async with media_body(request, settings, place) as body:
        try:
            chat_request, messages = await replica.body_parser.run(
                tenant, len(body), partial(_translated, exchange.dialect, body)
            )
        except MessagesMissing as missing:
            await replica.models.require(missing.model)
            raise
        check_body_size(len(body), chat_request, settings.max_body)
    check_answer(chat_request, settings)
    return ChatExchange(
        replica,
        chat_request,
        key=exchange.key,
        headers=request.headers,
        messages=messages,
        started_at=exchange.started_at,
        span=exchange.span,
    )


def _translated(dialect: Dialect, body: bytes) -> tuple[ChatRequest, bytes]:
    """Return the request in ``body`` and, if its response is to be stored, its messages."""
    chat_request = dialect.parse(body)
    return chat_request, sent_messages(body) if chat_request.store else b""


def _encoder(dialect: Dialect, chat: ChatExchange, first: Event) -> ResponseEncoder:
    fingerprint = first.fingerprint if isinstance(first, Started) else ""
    return dialect.render(chat.request, answer_id=chat.id, created=int(chat.accepted), fingerprint=fingerprint)


def _writer() -> Writer | None:
    """Return the function that writes directly to the connection of the current request, if its server has one."""
    connection = connection_extension(request)
    return connection["write_chunk"] if connection is not None else None


async def _announced(
    replica: Replica, dialect: Dialect, chat: ChatExchange, write: Writer | None
) -> AsyncIterator[bytes]:
    """Yield queue events until the first event from a worker, then the stream."""
    async for comment in replica.queue_events.until_started(chat.stream):
        yield comment
    async for piece in streamed(chat, _encoder(dialect, chat, await chat.stream.first()), replica.thread, write):
        yield piece
