"""From the body of a ``/v3`` request to the internal request.

The rules are those of OpenVINO Model Server's reference for chat/completions, where they differ from OpenAI's.
"""

import json
from typing import Annotated, Any

import msgspec
from pydantic import Field

from api.dialects.extended import ExtendedChatRequest, translate_extended
from api.dialects.openai.body import decode_object
from api.dialects.openai.validation import validate
from api.dialects.ovms.fields import check_fields
from shared.errors import ProblemKind, RequestRefused, refuse
from shared.request import ChatRequest, Constraint, Sampling

DEFAULTS = Sampling(temperature=1.0, top_p=1.0, top_k=40)
"""What the reference has where neither the client nor the model says anything."""

_OPENAI_FORMATS = ("text", "json_object", "json_schema")


class ModelServerChatRequest(ExtendedChatRequest):
    """The body of ``POST /v3/chat/completions``; ``fields.py`` tells which of the fields are served."""

    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] | None = None
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] | None = None


def parse_chat(body: bytes) -> ChatRequest:
    """Translate the body of a chat completion request. Raises :class:`shared.errors.RequestRefused`, nothing else."""
    value = decode_object(body)
    check_fields(value)
    structure = _take_structure(value)
    request = validate(ModelServerChatRequest, value)
    _check_choices(request)
    chat = translate_extended(request)
    return msgspec.structs.replace(
        chat,
        sampling=msgspec.structs.replace(chat.sampling, include_stop=_include_stop(request)),
        defaults=DEFAULTS,
        constraint=structure or chat.constraint,
    )


def _take_structure(value: dict[str, Any]) -> Constraint | None:
    """Take a response format out of ``value`` that OpenAI does not have; the worker checks what it says."""
    form = value.get("response_format")
    if not isinstance(form, dict) or not isinstance(form.get("type"), str) or form["type"] in _OPENAI_FORMATS:
        return None
    del value["response_format"]
    whole = form if form["type"] == "structural_tag" else {"type": "structural_tag", "format": form}
    return Constraint(kind="structural_tag", value=json.dumps(whole, ensure_ascii=False))


def _check_choices(request: ModelServerChatRequest) -> None:
    if request.best_of is None and (request.n or 1) > 1:
        raise _wrong(
            "n", f"it can't be greater than 'best_of', which is 1 unless set. Set 'best_of' to at least {request.n}"
        )


def _include_stop(request: ModelServerChatRequest) -> bool:
    """Whether the answer holds the stop string that ended it: always in streams, else where asked for."""
    if request.stream and request.include_stop_str_in_output is False:
        raise _wrong("include_stop_str_in_output", "it can't be false when 'stream' is true")
    return bool(request.stream or request.include_stop_str_in_output)


def _wrong(field: str, why: str) -> RequestRefused:
    return refuse(ProblemKind.INVALID, f"Invalid '{field}': {why}.", param=field, code="invalid_value")
