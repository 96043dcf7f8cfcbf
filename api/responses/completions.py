"""Stored chat completions: list, read, tag and delete them."""

from quart import Response, request

from api.dialects.base.lists import render_deleted
from api.dialects.base.routes import Body
from api.dialects.openai import stored as dialect
from api.http.bodies import BodyParser
from api.http.exchange import key_owner
from api.http.routes import STORE_ERRORS, json_response, route
from api.responses import documents
from api.stored.record import StoredResponse, is_completion_id
from api.stored.store import ResponseStore


class StoredCompletionHandler:
    def __init__(self, stored: ResponseStore, parser: BodyParser) -> None:
        self._stored = stored
        self._parser = parser

    @route("GET", "/v1/chat/completions", "listChatCompletions", query=dialect.StoredQuery, errors=STORE_ERRORS)
    async def list(self) -> Response:
        """List stored completions, filtered and paginated."""
        wanted = dialect.parse_selection(request.args)
        await documents.finish_completions(self._stored, key_owner())
        completions, more = await self._stored.select(key_owner(), wanted)
        return json_response(dialect.render_page(completions, more=more))

    @route("GET", "/v1/chat/completions/<completion_id>", "getChatCompletion", errors=STORE_ERRORS)
    async def get(self, completion_id: str) -> Response:
        """Return a stored completion."""
        return json_response(dialect.render_stored(await self._find(completion_id)))

    @route(
        "POST",
        "/v1/chat/completions/<completion_id>",
        "updateChatCompletion",
        body=Body(dialect.UpdateRequest, "ChatCompletionUpdate", served=dialect.UpdateRequest.model_fields),
        errors=(*STORE_ERRORS, 408, 413, 415),
    )
    async def update(self, completion_id: str) -> Response:
        """Replace the metadata of a stored completion."""
        metadata = await self._parser.read(request, key_owner(), dialect.parse_update)
        await self._find(completion_id)
        await self._stored.tag(key_owner(), completion_id, metadata)
        return json_response(dialect.render_stored(await self._find(completion_id)))

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
        query=dialect.StoredQuery,
        errors=STORE_ERRORS,
    )
    async def list_messages(self, completion_id: str) -> Response:
        """List the input messages of a stored completion."""
        wanted = dialect.parse_selection(request.args)
        return json_response(dialect.render_messages(await self._find(completion_id), wanted))

    async def _find(self, completion_id: str) -> StoredResponse:
        if is_completion_id(completion_id):
            completion = await documents.find(self._stored, key_owner(), completion_id)
            if completion is not None:
                return completion
        raise dialect.not_found(completion_id)
