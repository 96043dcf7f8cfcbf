"""Routes of the Responses API: create, read, stream again, cancel and delete responses, and count input tokens."""

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import cast

from quart import Blueprint, Response, request

from api.chat.exchange import ChatExchange
from api.chat.routes import STREAM_HEADERS, respond
from api.chat.tokenized import tokenized
from api.dialects.base.interface import MessagesMissing
from api.dialects.base.token_count import counting
from api.dialects.responses import Draft, Responses
from api.dialects.responses import stored as dialect
from api.dialects.responses.input_tokens import draft_input_tokens, render_input_tokens
from api.dialects.responses.schema import ResponsesRequest
from api.http.access import key_owner
from api.http.bodies import media_body, read_json_body
from api.http.exchange import HttpExchange, current_exchange
from api.http.json_response import json_response
from api.limits.headers import openai_rate_headers
from api.replica import Replica, current_replica
from api.responses import documents
from api.responses.background import start
from api.responses.exchange import chat_exchange_of, is_stored
from api.responses.history import history_of
from api.responses.replay import follow
from api.stored.record import StoredResponse, is_response_id

blueprint = Blueprint("responses", __name__)


@blueprint.post("/v1/responses")
async def create_response() -> Response:
    """Create a response: whole, streamed, or in the background."""
    replica, exchange = current_replica(), current_exchange()
    exchange.chat = chat = await _parsed(replica, exchange, cast(Responses, exchange.dialect).draft)
    if not chat.request.background:
        return await respond(replica, exchange, chat)
    record = await start(chat, replica.background)
    if chat.request.stream:
        response = _stream(replica, record, after=-1)
    else:
        response = json_response(dialect.render_response(record))
    response.headers.update(openai_rate_headers(chat.counts))
    # The request outlives this exchange.
    exchange.chat = None
    return response


@blueprint.post("/v1/responses/input_tokens")
async def count_input_tokens() -> Response:
    """Return the number of tokens of an input. A worker of the model counts them."""
    replica = current_replica()
    owner, parser = key_owner(), replica.body_parser
    body = await read_json_body(request, replica.settings)
    draft = await parser.run(owner, len(body), partial(draft_input_tokens, body))
    history = await history_of(replica.stored, parser, owner, draft, max_bytes=replica.settings.max_request_body)
    asked = await parser.run(owner, len(body) + history.size, partial(draft.request, history, store=False))
    found = await tokenized(counting(asked))
    return json_response(render_input_tokens(len(found.tokens)))


@blueprint.get("/v1/responses/<response_id>")
async def get_response(response_id: str) -> Response:
    """Return a response, or stream a background response from the beginning or from an event on."""
    replica = current_replica()
    streamed, after = dialect.parse_stream_query(request.args)
    record = await _find(response_id)
    if streamed:
        if not record.background:
            raise dialect.not_streamable()
        return _stream(replica, record, after=after)
    return json_response(dialect.render_response(record))


@blueprint.delete("/v1/responses/<response_id>")
async def delete_response(response_id: str) -> Response:
    """Delete a response. One that is still made in the background is cancelled."""
    replica = current_replica()
    record = await _find(response_id)
    await replica.stored.delete(key_owner(), response_id)
    if record.jobs:
        replica.cancellation.cancel(record.model, record.jobs)
    return json_response(dialect.render_deleted(response_id))


@blueprint.post("/v1/responses/<response_id>/cancel")
async def cancel_response(response_id: str) -> Response:
    """Cancel a background response. One that has ended is returned as it is."""
    replica = current_replica()
    record = await _find(response_id)
    if not record.background:
        raise dialect.not_cancellable()
    if not record.document:
        if await replica.stored.end(key_owner(), record, dialect.render_cancelled(record)):
            replica.cancellation.cancel(record.model, record.jobs)
        record = await _find(response_id)
    return json_response(dialect.render_response(record))


@blueprint.get("/v1/responses/<response_id>/input_items")
async def list_input_items(response_id: str) -> Response:
    """List the input items of a response."""
    return json_response(dialect.render_input_items(await _find(response_id), request.args))


async def _parsed(
    replica: Replica, exchange: HttpExchange, parse: Callable[[bytes], Draft[ResponsesRequest]]
) -> ChatExchange:
    """Read and parse the body, and the stored items that it needs."""
    settings = replica.settings
    owner = key_owner()
    place = replica.large_bodies.of(owner) if replica.directory.fleet.reads_images() else None
    async with media_body(request, settings, place) as body:
        try:
            draft = await replica.body_parser.run(owner, len(body), partial(parse, body))
        except MessagesMissing as missing:
            await replica.models.require(missing.model)
            raise
        size = len(body)
    history = await history_of(replica.stored, replica.body_parser, owner, draft, max_bytes=settings.max_request_body)
    store = is_stored(draft, is_large=size > settings.max_body)
    return await chat_exchange_of(replica, exchange, request.headers, draft, history, size=size, store=store)


def _stream(replica: Replica, record: StoredResponse, *, after: int) -> Response:
    events: AsyncIterator[bytes] = follow(replica.stored, key_owner(), record, after=after)
    response = Response(events, headers=STREAM_HEADERS)
    response.timeout = None
    return response


async def _find(response_id: str) -> StoredResponse:
    if is_response_id(response_id):
        record = await documents.find(current_replica().stored, key_owner(), response_id)
        if record is not None:
            return record
    raise dialect.not_found(response_id)
