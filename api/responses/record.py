"""The record of a stored response."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from api.outbox import PendingCompletion
from shared.protocol.request import ChatRequest, decode_request, encode_request


class _Fields(msgspec.Struct):
    """The field of a request that its record has too."""

    previous_response_id: str | None = None


_ID = re.compile(r"resp_([0-9a-f]{32})")
_ITEM_ID = re.compile(r"[a-z]{2,4}_([0-9a-f]{32})[0-9a-f]{4}")


class StoredResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A stored response, complete or still made in the background."""

    id: str
    document: bytes
    """The JSON body; empty while the response is generated."""
    input: bytes
    """The request's own input items, a JSON array."""
    previous: str = ""
    """The id of the response that this one continues."""
    job: str = ""
    """The job that makes the response in the background; empty once it has ended."""
    request: ChatRequest | None = None
    """The request without its messages, from which a background response's stream is encoded."""
    created: int = 0
    """Unix time in seconds at which a background response was accepted."""

    @property
    def answer_id(self) -> str:
        """The id without its prefix."""
        return self.id.removeprefix("resp_")


def record_of(pending: PendingCompletion, document: bytes) -> StoredResponse:
    """Return the record of a pending response, or of one that has ended with ``document``."""
    request = pending.request
    return StoredResponse(
        id=f"resp_{pending.answer_id}",
        document=document,
        input=pending.messages,
        previous=msgspec.json.decode(request.response_fields or "{}", type=_Fields).previous_response_id or "",
        job=pending.jobs[0] if request.background else "",
        request=request if request.background else None,
        created=int(pending.accepted),
    )


def is_response(pending: PendingCompletion) -> bool:
    """Return whether a pending completion is one of the Responses API, and not a chat completion."""
    return pending.request.response_fields is not None


def is_response_id(text: str) -> bool:
    """Return whether ``text`` has the form of a response's id."""
    return _ID.fullmatch(text) is not None


def response_of_item(item_id: str) -> str | None:
    """Return the id of the response with the item ``item_id``; None if no stored item has such an id."""
    match = _ITEM_ID.fullmatch(item_id)
    return None if match is None else f"resp_{match[1]}"


def to_fields(record: StoredResponse) -> dict[str, str | bytes | int]:
    """Return the fields of the record's hash. Those that are empty are left out."""
    fields: dict[str, str | bytes | int] = {"document": record.document, "input": record.input}
    if record.previous:
        fields["previous"] = record.previous
    if record.job:
        fields["job"] = record.job
    if record.request is not None:
        fields["request"] = encode_request(msgspec.structs.replace(record.request, messages=()))
        fields["created"] = record.created
    return fields


def from_fields(response_id: str, fields: Mapping[bytes, bytes]) -> StoredResponse:
    """Return the record in a hash. Raises :class:`ValueError` or :class:`KeyError` if it is unreadable."""
    request = decode_request(fields[b"request"]) if b"request" in fields else None
    record = StoredResponse(
        id=response_id,
        document=fields[b"document"],
        input=fields[b"input"],
        previous=fields.get(b"previous", b"").decode(),
        job=fields.get(b"job", b"").decode(),
        request=request,
        created=int(fields.get(b"created", b"0")),
    )
    msgspec.json.decode(record.input, type=list[dict[str, Any]])
    if record.document or not record.job:
        msgspec.json.decode(record.document, type=dict[str, Any])
    if record.job and request is None:
        raise ValueError("a running response has no request")
    return record
