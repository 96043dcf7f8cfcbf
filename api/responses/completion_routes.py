"""Stored chat completions: list, read, tag and delete them."""

from quart import Blueprint, Response, request

from api.dialects.base.lists import unknown_cursor
from api.dialects.openai import stored as dialect
from api.http.access import key_owner
from api.http.json_response import json_response
from api.replica import current_replica
from api.responses import documents
from api.stored.record import StoredResponse, is_completion_id

blueprint = Blueprint("stored", __name__)


@blueprint.get("/v1/chat/completions")
async def list_completions() -> Response:
    """List stored completions, filtered and paginated."""
    wanted = dialect.parse_selection(request.args)
    stored = current_replica().stored
    await documents.finish_completions(stored, key_owner())
    page = await stored.select(key_owner(), wanted)
    if page is None:
        raise unknown_cursor(wanted.after or "")
    completions, more = page
    return json_response(dialect.render_page(completions, more=more))


@blueprint.get("/v1/chat/completions/<completion_id>")
async def get_completion(completion_id: str) -> Response:
    """Return a stored completion."""
    return json_response(dialect.render_stored(await _find(completion_id)))


@blueprint.post("/v1/chat/completions/<completion_id>")
async def update_completion(completion_id: str) -> Response:
    """Replace the metadata of a stored completion."""
    replica = current_replica()
    metadata = await replica.body_parser.read(request, key_owner(), dialect.parse_update)
    await _find(completion_id)
    await replica.stored.tag(key_owner(), completion_id, metadata)
    return json_response(dialect.render_stored(await _find(completion_id)))


@blueprint.delete("/v1/chat/completions/<completion_id>")
async def delete_completion(completion_id: str) -> Response:
    """Delete a stored completion."""
    await _find(completion_id)
    await current_replica().stored.delete(key_owner(), completion_id)
    return json_response(dialect.render_deleted(completion_id))


@blueprint.get("/v1/chat/completions/<completion_id>/messages")
async def list_messages(completion_id: str) -> Response:
    """List the input messages of a stored completion."""
    wanted = dialect.parse_selection(request.args)
    return json_response(dialect.render_messages(await _find(completion_id), wanted))


async def _find(completion_id: str) -> StoredResponse:
    if is_completion_id(completion_id):
        completion = await documents.find(current_replica().stored, key_owner(), completion_id)
        if completion is not None:
            return completion
    raise dialect.not_found(completion_id)
