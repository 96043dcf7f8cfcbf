"""Stored chat completions: what is kept of an answer, and the bodies and queries of their routes."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from pydantic import Field

from api.dialects.openai.body import decode_object
from api.dialects.openai.fields import Strict
from api.dialects.openai.schema import Metadata
from api.dialects.openai.validation import validate
from api.stored import Selection, StoredCompletion
from shared.protocol.errors import ProblemKind, RequestRefused, refuse
from shared.protocol.request import ChatRequest

_METADATA = re.compile(r"metadata\[(.*)\]", re.DOTALL)
_LIMIT = re.compile(r"-?[0-9]{1,9}")


class _Query(Strict):
    """The query of a list."""

    after: str | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    model: str | None = None
    order: Literal["asc", "desc"] = "asc"
    metadata: Metadata


class _Update(Strict):
    """The body of an update."""

    metadata: Metadata | None


class _Head(msgspec.Struct, frozen=True):
    """What is looked up in an answer's document."""

    id: str


def sent_messages(body: bytes) -> bytes:
    """Return the messages in a request's ``body``, a JSON array."""
    return _dump(decode_object(body)["messages"])


def to_store(document: bytes, request: ChatRequest, messages: bytes) -> StoredCompletion:
    """Return what to keep of an answer: its JSON ``document``, and the ``messages`` that were sent."""
    return StoredCompletion(
        id=msgspec.json.decode(document, type=_Head).id,
        model=request.model,
        document=document,
        messages=messages,
        metadata=dict(request.metadata),
    )


def parse_selection(query: Mapping[str, str]) -> Selection:
    """Translate the query of a list. Raises :class:`RequestRefused` for values that are wrong."""
    value: dict[str, Any] = {name: text for name, text in query.items() if name in ("after", "model", "order")}
    if "limit" in query:
        # Anything but digits is left to validation, which names its type.
        value["limit"] = int(query["limit"]) if _LIMIT.fullmatch(query["limit"]) else query["limit"]
    value["metadata"] = {
        match[1]: text for name, text in query.items() if (match := _METADATA.fullmatch(name)) is not None
    }
    wanted = validate(_Query, value)
    return Selection(
        after=wanted.after,
        limit=wanted.limit,
        newest_first=wanted.order == "desc",
        model=wanted.model,
        metadata=wanted.metadata,
    )


def parse_update(body: bytes) -> dict[str, str]:
    """Return the new metadata. Raises :class:`RequestRefused` for a body that is wrong."""
    return validate(_Update, decode_object(body)).metadata or {}


def not_found(completion_id: str) -> RequestRefused:
    """The refusal of an id that names no stored completion."""
    return refuse(
        ProblemKind.NOT_FOUND,
        f"No stored completion with id '{completion_id[:64]}' found. Completions are kept for a while only, and only "
        "with 'store' true.",
        param="completion_id",
    )


def unknown_cursor(after: str) -> RequestRefused:
    """The refusal of a page that should begin behind something that is not there."""
    message = f"Invalid 'after': nothing with id '{after[:64]}' found."
    return refuse(ProblemKind.INVALID, message, param="after", code="invalid_value")


def render_stored(completion: StoredCompletion) -> bytes:
    """A stored completion as JSON."""
    return _dump(_object(completion))


def render_page(page: Sequence[StoredCompletion], *, more: bool) -> bytes:
    """A page of stored completions as JSON."""
    return _list([_object(completion) for completion in page], more=more)


def render_deleted(completion_id: str) -> bytes:
    """The answer to a deletion."""
    return _dump({"id": completion_id, "object": "chat.completion.deleted", "deleted": True})


def render_messages(completion: StoredCompletion, wanted: Selection) -> bytes:
    """A page of the messages that a stored completion answered.

    Raises :class:`RequestRefused` when there is no message with the id ``after``.
    """
    messages = [
        _message(completion.id, index, message) for index, message in enumerate(json.loads(completion.messages))
    ]
    if wanted.newest_first:
        messages.reverse()
    start = 0
    if wanted.after is not None:
        ids = [message["id"] for message in messages]
        if wanted.after not in ids:
            raise unknown_cursor(wanted.after)
        start = ids.index(wanted.after) + 1
    end = start + wanted.limit
    return _list(messages[start:end], more=len(messages) > end)


def _object(completion: StoredCompletion) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(completion.document)
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


def _list(items: Sequence[Mapping[str, Any]], *, more: bool) -> bytes:
    return _dump(
        {
            "object": "list",
            "data": items,
            "first_id": items[0]["id"] if items else None,
            "last_id": items[-1]["id"] if items else None,
            "has_more": more,
        }
    )


def _dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
