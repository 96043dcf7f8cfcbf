"""The record of a stored response: a chat completion with ``store: true``, or a response of the Responses API."""

import re
from collections.abc import Mapping

import msgspec

from shared.protocol.request import ChatRequest, decode_request, encode_request

_RESPONSE = "resp_"
_COMPLETION = "chatcmpl-"
_ID = re.compile(r"(?:resp_|chatcmpl-)([0-9a-f]{32})")
_ITEM_ID = re.compile(r"[a-z]{2,4}_([0-9a-f]{32})[0-9a-f]{4}")


class _Fields(msgspec.Struct):
    """The field of a request that its record has too."""

    previous_response_id: str | None = None


class StoredResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A stored response. It is written when its request is accepted, and gets its document when it ends."""

    id: str
    model: str
    created: int
    """Unix time in seconds at which its request was accepted."""
    input: bytes
    """The messages or input items that the client sent, a JSON array."""
    metadata: Mapping[str, str] = {}
    previous: str = ""
    """The id of the response that this one continues."""
    request: ChatRequest | None = None
    """The request without its messages; None for a response in the foreground that has ended."""
    jobs: tuple[str, ...] = ()
    """The jobs of a response without a document."""
    document: bytes = b""
    """Its JSON body; empty while there is none."""
    started: bool = False
    """Whether a worker has started a response without a document. Not stored."""

    @property
    def bare_id(self) -> str:
        """The id without its dialect's prefix."""
        return self.id.removeprefix(_RESPONSE).removeprefix(_COMPLETION)

    @property
    def background(self) -> bool:
        """Whether the response is or was generated in the background."""
        return self.request is not None and self.request.response.background


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """A page of completions: at most ``limit`` after the id ``after``, filtered by model and metadata."""

    after: str | None = None
    limit: int = 20
    newest_first: bool = False
    model: str | None = None
    metadata: Mapping[str, str] = {}


def record_of(
    request: ChatRequest, bare_id: str, jobs: tuple[str, ...], *, created: int, messages: bytes
) -> StoredResponse:
    """Return the record of an accepted request. ``messages`` are those that the client sent, a JSON array."""
    echoed = msgspec.json.decode(request.response.echoed or "{}", type=_Fields)
    prefix = _COMPLETION if request.response.echoed is None else _RESPONSE
    return StoredResponse(
        id=prefix + bare_id,
        model=request.model,
        created=created,
        input=messages,
        metadata=dict(request.response.metadata),
        previous=echoed.previous_response_id or "",
        request=request,
        jobs=jobs,
    )


def is_completion_id(text: str) -> bool:
    return text.startswith(_COMPLETION) and is_id(text)


def is_response_id(text: str) -> bool:
    return text.startswith(_RESPONSE) and is_id(text)


def is_id(text: str) -> bool:
    """Return whether ``text`` has the form of a stored response's id."""
    return _ID.fullmatch(text) is not None


def response_of_item(item_id: str) -> str | None:
    """Return the id of the response with the item ``item_id``; None if no stored item has such an id."""
    match = _ITEM_ID.fullmatch(item_id)
    return None if match is None else _RESPONSE + match[1]


def to_fields(record: StoredResponse) -> dict[str, str | bytes | int]:
    """Return the fields of the hash of a record without a document."""
    assert record.request is not None
    return {
        "model": record.model,
        "created": record.created,
        "input": record.input,
        "metadata": msgspec.json.encode(record.metadata),
        "previous": record.previous,
        "request": encode_request(msgspec.structs.replace(record.request, messages=())),
        "jobs": " ".join(record.jobs),
    }


def from_fields(response_id: str, fields: Mapping[bytes, bytes]) -> StoredResponse:
    """Return the record in a hash. Raises :class:`ValueError` or :class:`KeyError` if it is unreadable."""
    record = StoredResponse(
        id=response_id,
        model=fields[b"model"].decode(),
        created=int(fields[b"created"]),
        input=fields[b"input"],
        metadata=msgspec.json.decode(fields[b"metadata"], type=dict[str, str]),
        previous=fields[b"previous"].decode(),
        request=decode_request(fields[b"request"]) if b"request" in fields else None,
        jobs=tuple(fields.get(b"jobs", b"").decode().split()),
        document=fields.get(b"document", b""),
    )
    msgspec.json.decode(record.input, type=list[dict[str, msgspec.Raw]])
    if b"document" in fields:
        msgspec.json.decode(record.document, type=dict[str, msgspec.Raw])
    elif record.request is None or not record.jobs:
        raise ValueError("a response without a document has no request or no jobs")
    return record
