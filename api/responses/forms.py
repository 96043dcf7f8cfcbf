"""Stored responses: the bodies and queries of their routes."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from pydantic import Field
from werkzeug.datastructures import MultiDict

from api.dialects.base import lists
from api.dialects.base.fields import Items, Strict
from api.dialects.base.query import validate_query
from api.dialects.base.unsupported import unsupported
from api.dialects.responses.output import PREFIXES
from api.dialects.responses.render import ResponsesEncoder
from api.dialects.responses.schema import Includable
from api.stored.record import StoredResponse
from shared.protocol.errors import ProblemKind, RequestRefused, refuse
from shared.protocol.request import ChatRequest

_PREFIXES = PREFIXES | {"function_call_output": "fco", "custom_tool_call_output": "ctco"}
_WITH_STATUS = ("message", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output")
_PART_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "input_image": {"detail": "auto"},
    "output_text": {"annotations": [], "logprobs": []},
}
"""Fields of parts that requests may omit and lists always have."""
_FIRST_INPUT = 0x8000
"""Number of the first input item in ids; those of output items are lower."""


class _Document(msgspec.Struct):
    """The field of a stored response with its items; the others are skipped."""

    output: list[dict[str, Any]]


_document_decoder = msgspec.json.Decoder(_Document)


class ItemsQuery(Strict):
    """Query of a list of input items. What can be included always is."""

    after: str | None = None
    include: Items[Includable] | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    order: Literal["asc", "desc"] = "desc"


class RetrieveQuery(Strict):
    """Query of a response that may be streamed. What can be included is, if the request asks for it."""

    include: Items[Includable] | None = None
    include_obfuscation: Annotated[bool, Field(json_schema_extra={"enum": [False]})] = False
    stream: bool = False
    starting_after: Annotated[int, Field(ge=0)] | None = None


def encoder_of(record: StoredResponse, request: ChatRequest, *, after: int = -1) -> ResponsesEncoder:
    """Return the encoder of a background response. Events with numbers up to ``after`` are left out."""
    return ResponsesEncoder(request, response_id=record.bare_id, created=record.created, after=after)


def render_response(record: StoredResponse) -> bytes:
    if record.document or record.request is None:
        return record.document
    return encoder_of(record, record.request).unfinished("in_progress" if record.started else "queued")


def render_cancelled(record: StoredResponse) -> bytes:
    """Return a background response that is cancelled, as JSON."""
    if record.request is None:
        raise AssertionError("only background responses are cancelled")
    return encoder_of(record, record.request).unfinished("cancelled")


def render_input_items(record: StoredResponse, query: MultiDict[str, str]) -> bytes:
    """Return a page of a response's input items.

    Raises :class:`RequestRefused` for an invalid query, and if there is no item with the id ``after``.
    """
    wanted = validate_query(ItemsQuery, query)
    items = input_items(record)
    if wanted.order == "desc":
        items.reverse()
    return lists.render_page(items, after=wanted.after, limit=wanted.limit)


def input_items(record: StoredResponse) -> list[dict[str, Any]]:
    return [_complete(record, index, item) for index, item in enumerate(json.loads(record.input))]


def output_items(record: StoredResponse) -> Sequence[Mapping[str, Any]]:
    """Return the output items of a response that has ended."""
    return _document_decoder.decode(record.document).output


def parse_stream_query(query: MultiDict[str, str]) -> tuple[bool, int]:
    """Return whether a stream is wanted, and the number of the event that it starts after; -1 for the beginning.

    Raises :class:`RequestRefused` for an invalid query.
    """
    wanted = validate_query(RetrieveQuery, query)
    if wanted.include_obfuscation:
        raise unsupported("include_obfuscation", "It is supported for chat completions only.")
    if wanted.starting_after is not None and not wanted.stream:
        message = "The 'starting_after' parameter is only allowed when 'stream' is enabled."
        raise refuse(ProblemKind.INVALID, message, param="starting_after")
    return wanted.stream, -1 if wanted.starting_after is None else wanted.starting_after


def not_found(response_id: str) -> RequestRefused:
    return refuse(ProblemKind.NOT_FOUND, f"Response with id '{response_id[:80]}' not found.", param="response_id")


def not_streamable() -> RequestRefused:
    message = "Only background responses can be streamed again; read this one without 'stream'."
    return refuse(ProblemKind.INVALID, message, param="stream", code="invalid_value")


def not_compacted() -> RequestRefused:
    message = "Conversations are not compacted here. Ask for a summary in a message, and continue with it as the input."
    return refuse(ProblemKind.INVALID, message, code="unsupported_operation")


def not_cancellable() -> RequestRefused:
    """Return the refusal to cancel a response that was not made in the background."""
    return refuse(ProblemKind.INVALID, "Cannot cancel a synchronous response.", param="response_id")


def _complete(record: StoredResponse, index: int, item: Mapping[str, Any]) -> dict[str, Any]:
    """Return an input item in the form in which it is listed."""
    kind = item.get("type") or "message"
    shown = {
        **{name: value for name, value in item.items() if value is not None},
        "id": item.get("id") or f"{_PREFIXES.get(kind, 'item')}_{record.bare_id}{_FIRST_INPUT + index:04x}",
        "type": kind,
    }
    if kind in _WITH_STATUS:
        shown["status"] = item.get("status") or "completed"
    if kind == "message" and isinstance(item["content"], str):
        part = "output_text" if item["role"] == "assistant" else "input_text"
        shown["content"] = [{"type": part, "text": item["content"]}]
    for field in ("content", "output"):
        if isinstance(shown.get(field), list):
            shown[field] = [_PART_DEFAULTS.get(part["type"], {}) | part for part in shown[field]]
    return shown
