"""Events of the Responses API over a WebSocket: the client's, and how the server's follow from those of a stream."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from api.dialects.interface import ErrorReply
from api.dialects.openai.unserved import unsupported
from api.dialects.openai.validation import missing, wrong_value
from api.dialects.responses.parse import Draft, draft_of
from api.dialects.responses.schema import ResponsesRequest
from shared.protocol.errors import Problem, ProblemKind, RequestRefused, refuse

_CREATE = "response.create"


class Create(NamedTuple):
    """An event that asks for a response."""

    draft: Draft[ResponsesRequest]
    generate: bool
    """Whether the model is asked. Otherwise the response has no output, and exists to be continued."""


def parse_create(event: Mapping[str, Any]) -> Create:
    """Return what an event of a client asks for. Raises :class:`RequestRefused` and no other exception."""
    body = dict(event)
    kind = body.pop("type", None)
    if kind is None:
        raise missing("type")
    if kind != _CREATE:
        raise wrong_value("type", str(kind), (_CREATE,))
    if body.pop("stream_id", None) is not None:
        raise unsupported("stream_id", "Responses are made one after the other; open a connection for each stream.")
    generate = body.pop("generate", None)
    if generate not in (None, True, False):
        raise refuse(ProblemKind.INVALID, "Invalid type for 'generate': expected a boolean.", param="generate")
    if body.get("background"):
        raise unsupported("background", "Responses over a WebSocket are made in the foreground.")
    if body.get("stream") is False:
        raise unsupported("stream", "Responses over a WebSocket are always streamed.")
    return Create(draft_of(ResponsesRequest, {"stream": True} | body), generate is not False)


def not_storable() -> RequestRefused:
    """Return the refusal to store a response that continues one that only its connection knows."""
    message = "A response can't be stored if the response that it continues is not."
    return refuse(ProblemKind.INVALID, message, param="store", code="invalid_value")


def messages(piece: bytes) -> Iterator[bytes]:
    """Yield the data of each server-sent event in ``piece``, which has only whole ones."""
    for event in piece.split(b"\n\n"):
        if event:
            yield event.partition(b"\ndata: ")[2]


def error_message(reply: ErrorReply, headers: Mapping[str, str]) -> bytes:
    """Return the event of an error, which has the status and the headers of the HTTP response in ``reply``."""
    error: dict[str, Any] = msgspec.json.decode(reply.body)["error"]
    event = {"type": "error", "status": reply.status, "error": error | {"code": error["code"] or error["type"]}}
    if shown := {**headers, **reply.headers}:
        event["headers"] = shown
    return msgspec.json.encode(event)


def lifetime_over(minutes: int) -> Problem:
    """Return the problem of a connection that has been open for too long."""
    return Problem(
        kind=ProblemKind.INVALID,
        message=f"This WebSocket has reached its limit of {minutes} minutes. Open a new one to continue.",
        code="websocket_connection_limit_reached",
    )
