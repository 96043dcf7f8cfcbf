"""Stored chat completions: the bodies and queries of their routes."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from pydantic import Field

from api.dialects.base import lists
from api.dialects.base.body import decode_object
from api.dialects.base.fields import Strict
from api.dialects.base.query import validate_query
from api.dialects.base.validation import validate
from api.dialects.openai.schema import Metadata
from api.stored.record import Selection, StoredResponse
from shared.protocol.errors import ProblemKind, RequestRefused, refuse

_METADATA = re.compile(r"metadata\[(.*)\]", re.DOTALL)


class StoredQuery(Strict):
    after: str | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    model: str | None = None
    order: Literal["asc", "desc"] = "asc"
    metadata: Metadata


class UpdateRequest(Strict):
    metadata: Metadata | None


def parse_selection(query: Mapping[str, str]) -> Selection:
    """Parse the query of a list. Raises :class:`RequestRefused` for invalid values."""
    metadata = {match[1]: text for name, text in query.items() if (match := _METADATA.fullmatch(name)) is not None}
    wanted = validate_query(StoredQuery, query, {"metadata": metadata})
    return Selection(
        after=wanted.after,
        limit=wanted.limit,
        newest_first=wanted.order == "desc",
        model=wanted.model,
        metadata=wanted.metadata,
    )


def parse_update(body: bytes) -> dict[str, str]:
    """Return the new metadata. Raises :class:`RequestRefused` for an invalid body."""
    return validate(UpdateRequest, decode_object(body)).metadata or {}


def not_found(completion_id: str) -> RequestRefused:
    return refuse(
        ProblemKind.NOT_FOUND,
        f"No stored completion with id '{completion_id[:64]}' found. Completions are kept for a while only, and only "
        "with 'store' true.",
        param="completion_id",
    )


def render_stored(completion: StoredResponse) -> bytes:
    return msgspec.json.encode(_object(completion))


def render_page(page: Sequence[StoredResponse], *, more: bool) -> bytes:
    objects = [_object(completion) for completion in page]
    return lists.render_list(objects, [completion.id for completion in page], more=more)


def render_messages(completion: StoredResponse, wanted: Selection) -> bytes:
    """Encode a page of the messages of a stored completion's request.

    Raises :class:`RequestRefused` if there is no message with the id ``after``.
    """
    messages = [_message(completion.id, index, message) for index, message in enumerate(json.loads(completion.input))]
    if wanted.newest_first:
        messages.reverse()
    return lists.render_page(messages, after=wanted.after, limit=wanted.limit)


def _object(completion: StoredResponse) -> dict[str, Any]:
    document: dict[str, Any] = _document_decoder.decode(completion.document)
    return document | {"metadata": dict(completion.metadata)}


def _message(completion_id: str, index: int, message: Mapping[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    parts = content if isinstance(content, list) else None
    return {
        **message,
        "id": f"{completion_id}-{index}",
        "content": "\n".join(part.get("text", "") for part in parts) if parts is not None else content,
        "content_parts": parts,
        "refusal": message.get("refusal"),
    }


_document_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
"""Documents may have megabytes, and only their metadata changes."""
