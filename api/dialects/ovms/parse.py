"""Parser of ``/v3`` request bodies: those of ``/v1``, and what OpenVINO Model Server's reference has otherwise.

As in the model server, unknown fields are ignored; a header of the response names them.
"""

import json
from typing import Annotated, Any, ClassVar

import msgspec
from pydantic import ConfigDict, Field

from api.dialects.base.body import decode_object
from api.dialects.base.fields import left_out
from api.dialects.base.sampling import Into
from api.dialects.base.validation import invalid, validate
from api.dialects.openai.extended import (
    ExtendedChatRequest,
    ExtendedCompletionRequest,
    translate_chat,
    translate_plain,
)
from shared.protocol.request import LOCAL, ChatRequest, Constraint, Message, Sampling

DEFAULTS = Sampling(temperature=1.0, top_p=1.0, top_k=40)
"""The reference's defaults, used if neither the client nor the model specifies a value."""

_OPENAI_FORMATS = ("text", "json_object", "json_schema")

Seed = Annotated[int, Field(ge=0, le=2**32 - 1), Into()]
TopP = Annotated[float, Field(gt=0.0, le=1.0), Into()]


class ModelServerChatRequest(ExtendedChatRequest):
    """The body of ``POST /v3/chat/completions``."""

    model_config = ConfigDict(extra="allow")
    answered_calls: ClassVar[bool] = False

    seed: Seed | None = None
    top_p: TopP | None = None


class ModelServerCompletionRequest(ExtendedCompletionRequest):
    """The body of ``POST /v3/completions``."""

    model_config = ConfigDict(extra="allow")

    # OpenAI's number excludes the sampled token; the model server's includes it.
    logprobs: Annotated[int, Field(ge=0, le=1), Into(convert=bool)] | None = None
    seed: Seed | None = None
    top_p: TopP | None = None


def parse_chat(body: bytes) -> ChatRequest:
    """Parse a chat completion body. Raises :class:`RequestRefused` and no other exception."""
    value = decode_object(body)
    structure = take_structure(value)
    if isinstance(value.get("messages"), list):
        value["messages"] = [_message(index, message) for index, message in enumerate(value["messages"])]
    if not value.get("store"):
        value.pop("metadata", None)
    return finished(translate_chat(validate(ModelServerChatRequest, value)), value, structure)


def parse_completion(body: bytes) -> ChatRequest:
    """Parse a plain completion body. Raises :class:`RequestRefused` and no other exception.

    Unlike OpenAI's, a completion without ``max_tokens`` is limited only by the context length.
    """
    value = decode_object(body)
    return finished(translate_plain(validate(ModelServerCompletionRequest, value)), value)


def take_structure(value: dict[str, Any]) -> Constraint | None:
    """Remove from ``value`` and return a response format that OpenAI lacks. The worker validates its content."""
    form = value.get("response_format")
    if not isinstance(form, dict) or not isinstance(form.get("type"), str) or form["type"] in _OPENAI_FORMATS:
        return None
    del value["response_format"]
    whole = form if form["type"] == "structural_tag" else {"type": "structural_tag", "format": form}
    return Constraint(kind="structural_tag", value=json.dumps(whole, ensure_ascii=False))


def _message(index: int, message: Any) -> Any:
    """Return a message with what may be left out: its content, ids of calls, and their arguments."""
    if not isinstance(message, dict):
        return message
    whole: dict[str, Any] = {"tool_call_id": ""} | message if message.get("role") == "tool" else dict(message)
    if left_out(whole.get("content")):
        whole["content"] = ""
    if isinstance(whole.get("tool_calls"), list):
        whole["tool_calls"] = [
            _call(f"call{index:03}{place:02}", call) for place, call in enumerate(whole["tool_calls"])
        ]
    return whole


def _call(call_id: str, call: Any) -> Any:
    if not isinstance(call, dict) or not isinstance(call.get("function"), dict):
        return call
    return {"id": call_id, "type": "function"} | call | {"function": {"arguments": "{}"} | call["function"]}


def _with_local_files(message: Message) -> Message:
    """Return ``message`` with the paths of local images as URLs."""
    images = tuple(
        msgspec.structs.replace(image, url=f"{LOCAL}{image.url}") if image.url.startswith("/") else image
        for image in message.images
    )
    return msgspec.structs.replace(message, images=images)


def finished(request: ChatRequest, value: dict[str, Any], structure: Constraint | None = None) -> ChatRequest:
    """Apply the rules and defaults that all interfaces share. ``value`` is the validated body."""
    if request.n > request.sampling.beams:
        raise invalid(
            "n", f"it can't be greater than 'best_of', which is 1 unless set. Set 'best_of' to at least {request.n}"
        )
    # A stream can't retract the sent beginning of a stop string, so by the reference streams always include it.
    if request.response.stream and value.get("include_stop_str_in_output") is False:
        raise invalid("include_stop_str_in_output", "it can't be false when 'stream' is true")
    include_stop = request.response.stream or request.sampling.include_stop
    sampling = msgspec.structs.replace(request.sampling, include_stop=include_stop)
    return msgspec.structs.replace(
        request,
        sampling=sampling,
        defaults=DEFAULTS,
        constraint=structure or request.constraint,
        messages=tuple(map(_with_local_files, request.messages)),
    )
