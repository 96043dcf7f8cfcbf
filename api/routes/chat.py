"""Chat routes: parse the body by the dialect, accept the request, encode the response stream."""

from collections.abc import AsyncIterator

from quart import Blueprint, Response, request

from api.answers.selection import check_size
from api.answers.writing import collect, stream
from api.bodies import body_too_large, media_body
from api.chat_exchange import ChatExchange
from api.connection_extension import connection_extension
from api.context import Context, context
from api.dialects.interface import Choice, MessagesMissing, ResponseEncoder
from api.dialects.openai.stored import sent_messages
from api.http_exchange import HttpExchange, current_exchange

blueprint = Blueprint("chat", __name__)

STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}


@blueprint.post("/v1/chat/completions")
@blueprint.post("/v1/completions")
@blueprint.post("/v1/messages")
@blueprint.post("/v1/responses")
@blueprint.post("/v3/chat/completions")
@blueprint.post("/v3/completions")
@blueprint.post("/chat/completions")
@blueprint.post("/models/chat/completions")
async def chat_completions() -> Response:
    """Create a chat completion or a plain completion. The HTTP status is sent after the first event from a worker."""
    parts, exchange = context(), current_exchange()
    exchange.chat = chat = await _parsed(parts, exchange)
    # A streamed response outlives this function. The HTTP exchange does not.
    await exchange.enter(chat)
    started = await chat.stream.started()
    encoder = exchange.dialect.render(
        chat.request, answer_id=chat.id, created=int(chat.accepted), fingerprint=started.fingerprint
    )
    if chat.request.stream:
        response = Response(_streamed(chat, encoder), headers=STREAM_HEADERS)
    else:
        whole = encoder.completion(await collect(chat.stream, chat.request, chat.recorder), chat.recorder.usage())
        await chat.store(whole)
        response = Response(whole, content_type="application/json")
    response.timeout = None
    return response


async def _parsed(parts: Context, exchange: HttpExchange) -> ChatExchange:
    """Read and parse the body. It may be large, so nothing refers to it afterwards."""
    settings = parts.settings
    large = parts.large_bodies if parts.directory.fleet.reads_images() else None
    async with media_body(request, settings, large) as body:
        try:
            chat_request = exchange.dialect.parse(body)
        except MessagesMissing as missing:
            await parts.models.require(missing.model)
            raise
        # What is stored is kept for long, so it must be small.
        if len(body) > settings.max_body and (chat_request.store or not chat_request.images):
            raise body_too_large(settings.max_body)
        messages = sent_messages(body) if chat_request.store else b""
    check_size(chat_request, settings.max_choices)
    return ChatExchange(
        parts,
        chat_request,
        key=exchange.key,
        headers=request.headers,
        messages=messages,
        began=exchange.began,
    )


def _streamed(chat: ChatExchange, encoder: ResponseEncoder) -> AsyncIterator[bytes]:
    async def store(choices: list[Choice]) -> None:
        await chat.store(encoder.completion(choices, chat.recorder.usage()))

    connection = connection_extension(request)
    return stream(
        chat.stream,
        chat.request,
        encoder,
        chat.recorder,
        on_whole=store if chat.is_stored else None,
        write=connection["write_chunk"] if connection is not None else None,
    )
