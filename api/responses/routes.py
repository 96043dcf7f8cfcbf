"""The Responses API: create, read, stream again, cancel and delete responses, and count input tokens; and stored chat
completions."""

import asyncio
from dataclasses import dataclass
from functools import partial

import msgspec
from quart import Response
from quart import request as http_request

from api.chat.exchange import ChatExchange, ChatServices
from api.chat.queue_events import QueueEvents
from api.chat.results import results
from api.chat.routes import RequestBodies, Responder, stream_response, wants_queue_events
from api.chat.span import end_background_span, start_background_span
from api.dialects.base.interface import EVENT_STREAM
from api.dialects.base.lists import render_deleted
from api.dialects.base.routes import JSON, Body
from api.dialects.responses import ROUTES, Responses
from api.dialects.responses.parse import (
    InputTokensRequest,
    StoredConversation,
    ValidatedRequest,
    render_input_tokens,
    validated_input_tokens,
    validated_response,
)
from api.dialects.responses.schema import ResponsesRequest
from api.http.bodies import BodyParser
from api.http.exchange import current_exchange, key_owner
from api.http.routes import ERRORS, STORE_ERRORS, json_response, route, serving
from api.responses import completion_forms as completions
from api.responses import documents, forms
from api.responses.conversation import stored_conversation
from api.responses.replay import follow
from api.stored.record import StoredResponse, is_completion_id, is_response_id
from api.stored.store import ResponseStore
from shared.protocol.errors import RequestRefused
from shared.protocol.request import COUNT, ChatRequest
from shared.runtime.settings import ApiSettings
from shared.runtime.tasks import BackgroundTasks

_route = partial(route, dialect=Responses)
_RETRY = 1.0
"""Seconds between two attempts to store a response."""


@dataclass(frozen=True, slots=True)
class ResponsesHandler:
    bodies: RequestBodies
    parser: BodyParser
    services: ChatServices
    responder: Responder
    stored: ResponseStore
    tasks: BackgroundTasks
    """Those of background responses."""
    queue_events: QueueEvents
    settings: ApiSettings

    @serving(*ROUTES)
    async def create(self) -> Response:
        """Create a response: whole, streamed, or in the background."""
        exchange = current_exchange()
        chat = await self._parsed()
        if not chat.request.response.background:
            return await self.responder.respond(exchange, chat)
        # Its rate limits are in the headers of a refusal, too.
        exchange.details = chat
        record = await start_background(chat, self.tasks)
        if chat.request.response.stream:
            response = self._stream(record, after=-1)
        else:
            response = json_response(forms.render_response(record))
        response.headers.update(exchange.dialect.rate_headers(chat.counts))
        # The request outlives this exchange.
        exchange.details = None
        return response

    @_route(
        "POST",
        "/v1/responses/input_tokens",
        "countInputTokens",
        body=Body(InputTokensRequest),
        errors=ERRORS,
    )
    async def count_input_tokens(self) -> Response:
        """Return the number of tokens of an input. A worker of the model counts them."""
        parse = validated_input_tokens
        valid, size = await self.parser.read(http_request, key_owner(), lambda body: (parse(body), len(body)))
        conversation = await self._conversation(valid)
        translate = partial(valid.request, conversation, store=False)
        asked = await self.parser.run(key_owner(), size + conversation.size, translate)
        count = msgspec.structs.replace(asked, work=COUNT)
        (found,) = await results(self.services, current_exchange(), count)
        return json_response(render_input_tokens(found.count))

    @_route("POST", "/v1/responses/compact", "compactResponse", errors=ERRORS)
    async def compact(self) -> Response:
        """Refuse to compact a conversation."""
        raise forms.not_compacted()

    @_route(
        "GET",
        "/v1/responses/<response_id>",
        "getResponse",
        query=forms.RetrieveQuery,
        returns=(JSON, EVENT_STREAM),
        errors=STORE_ERRORS,
    )
    async def get(self, response_id: str) -> Response:
        """Return a response, or stream a background response from the beginning or from an event on."""
        streamed, after = forms.parse_stream_query(http_request.args)
        record = await self._find(response_id)
        if streamed:
            if not record.background:
                raise forms.not_streamable()
            return self._stream(record, after=after)
        return json_response(forms.render_response(record))

    @_route("DELETE", "/v1/responses/<response_id>", "deleteResponse", errors=STORE_ERRORS)
    async def delete(self, response_id: str) -> Response:
        """Delete a response. One that is still made in the background is cancelled."""
        record = await self._find(response_id)
        await self.stored.delete(key_owner(), response_id)
        if record.jobs:
            self.services.streams.cancel(record.model, record.jobs)
        return json_response(render_deleted(response_id, "response"))

    @_route("POST", "/v1/responses/<response_id>/cancel", "cancelResponse", errors=STORE_ERRORS)
    async def cancel(self, response_id: str) -> Response:
        """Cancel a background response. One that has ended is returned as it is."""
        record = await self._find(response_id)
        if not record.background:
            raise forms.not_cancellable()
        if not record.document:
            if await self.stored.end(key_owner(), record, forms.render_cancelled(record)):
                self.services.streams.cancel(record.model, record.jobs)
            record = await self._find(response_id)
        return json_response(forms.render_response(record))

    @_route(
        "GET",
        "/v1/responses/<response_id>/input_items",
        "listInputItems",
        query=forms.ItemsQuery,
        errors=STORE_ERRORS,
    )
    async def list_input_items(self, response_id: str) -> Response:
        """List the input items of a response."""
        return json_response(forms.render_input_items(await self._find(response_id), http_request.args))

    async def _parsed(self) -> ChatExchange:
        """Read and parse the body, and the stored items that it needs."""
        exchange = current_exchange()
        valid, size = await self.bodies.read(validated_response)
        conversation = await self._conversation(valid)
        # Responses are stored by default, unless their request is large.
        store = size <= self.settings.max_body if valid.store is None else valid.store
        translate = partial(_translated, valid, conversation, store=store)
        request, items = await self.parser.run(key_owner(), size + conversation.size, translate)
        self.bodies.check(request, size)
        span = exchange.span
        if request.response.background:
            span = start_background_span(self.services.tracing, span, exchange.started_at)
        return ChatExchange.of(self.services, exchange, request, http_request.headers, messages=items, span=span)

    async def _conversation(self, valid: ValidatedRequest[ResponsesRequest]) -> StoredConversation:
        maximum = self.settings.max_request_body
        return await stored_conversation(self.stored, self.parser, key_owner(), valid, max_bytes=maximum)

    def _stream(self, record: StoredResponse, *, after: int) -> Response:
        announced = self.queue_events if wants_queue_events() else None
        return stream_response(follow(self.stored, key_owner(), record, after=after, queue_events=announced))

    async def _find(self, response_id: str) -> StoredResponse:
        if is_response_id(response_id):
            record = await documents.find(self.stored, key_owner(), response_id)
            if record is not None:
                return record
        raise forms.not_found(response_id)


class StoredCompletionHandler:
    def __init__(self, stored: ResponseStore, parser: BodyParser) -> None:
        self._stored = stored
        self._parser = parser

    @route("GET", "/v1/chat/completions", "listChatCompletions", query=completions.StoredQuery, errors=STORE_ERRORS)
    async def list(self) -> Response:
        """List stored completions, filtered and paginated."""
        wanted = completions.parse_selection(http_request.args)
        await documents.finish_completions(self._stored, key_owner())
        found, more = await self._stored.select(key_owner(), wanted)
        return json_response(completions.render_page(found, more=more))

    @route("GET", "/v1/chat/completions/<completion_id>", "getChatCompletion", errors=STORE_ERRORS)
    async def get(self, completion_id: str) -> Response:
        """Return a stored completion."""
        return json_response(completions.render_stored(await self._find(completion_id)))

    @route(
        "POST",
        "/v1/chat/completions/<completion_id>",
        "updateChatCompletion",
        body=Body(completions.UpdateRequest, "ChatCompletionUpdate", served=completions.UpdateRequest.model_fields),
        errors=(*STORE_ERRORS, 408, 413, 415),
    )
    async def update(self, completion_id: str) -> Response:
        """Replace the metadata of a stored completion."""
        metadata = await self._parser.read(http_request, key_owner(), completions.parse_update)
        await self._find(completion_id)
        await self._stored.tag(key_owner(), completion_id, metadata)
        return json_response(completions.render_stored(await self._find(completion_id)))

    @route("DELETE", "/v1/chat/completions/<completion_id>", "deleteChatCompletion", errors=STORE_ERRORS)
    async def delete(self, completion_id: str) -> Response:
        """Delete a stored completion."""
        await self._find(completion_id)
        await self._stored.delete(key_owner(), completion_id)
        return json_response(render_deleted(completion_id, "chat.completion.deleted"))

    @route(
        "GET",
        "/v1/chat/completions/<completion_id>/messages",
        "listChatCompletionMessages",
        query=completions.StoredQuery,
        errors=STORE_ERRORS,
    )
    async def list_messages(self, completion_id: str) -> Response:
        """List the input messages of a stored completion."""
        wanted = completions.parse_selection(http_request.args)
        return json_response(completions.render_messages(await self._find(completion_id), wanted))

    async def _find(self, completion_id: str) -> StoredResponse:
        if is_completion_id(completion_id):
            completion = await documents.find(self._stored, key_owner(), completion_id)
            if completion is not None:
                return completion
        raise completions.not_found(completion_id)


def _translated(
    valid: ValidatedRequest[ResponsesRequest], conversation: StoredConversation, *, store: bool
) -> tuple[ChatRequest, bytes]:
    """Return the request of ``valid`` and, if its response is to be stored, its input items."""
    request = valid.request(conversation, store=store)
    return request, msgspec.json.encode(valid.input_items(conversation)) if store else b""


async def start_background(chat: ChatExchange, tasks: BackgroundTasks) -> StoredResponse:
    """Accept the background request of ``chat`` and return its record. The response goes on in ``tasks``.

    Raises :class:`RequestRefused`.
    """
    try:
        await chat.__aenter__()
    except BaseException as error:
        if isinstance(error, RequestRefused):
            chat.recorder.outcome = error.problem.kind
        end_background_span(chat.span, chat.recorder)
        raise
    tasks.run(_run(chat), "background response")
    return chat.record


async def _run(chat: ChatExchange) -> None:
    """Wait for the end of the entered ``chat``, store the response, and leave the exchange.

    At shutdown, the response goes on without this replica.
    """
    try:
        document = await documents.run_to_end(
            chat.stream, chat.request, chat.recorder, response_id=chat.id, created=chat.record.created
        )
        while not chat.stream.left:
            if await chat.store(document):
                break
            await asyncio.sleep(_RETRY)
    finally:
        await chat.__aexit__(None, None, None)
        end_background_span(chat.span, chat.recorder)
