"""Counting the tokens of an input, at ``/v1/responses/input_tokens``."""

from typing import ClassVar

import msgspec

from api.dialects.base.body import decode_object
from api.dialects.base.unsupported import unsupported
from api.dialects.base.validation import check_names
from api.dialects.responses.parse import ValidatedRequest, unknown_fields, validated, with_input
from api.dialects.responses.schema import PromptFields, ResponsesRequest


class InputTokensRequest(PromptFields):
    """The body of ``POST /v1/responses/input_tokens``."""

    personality: str | None = None


class _Counted(ResponsesRequest):
    answered_calls: ClassVar[bool] = False


def validated_input_tokens(body: bytes) -> ValidatedRequest[ResponsesRequest]:
    """Validate a body and return the validated request for a response.

    Raises :class:`RequestRefused` and no other exception.
    """
    value = decode_object(body)
    check_names(InputTokensRequest, value, unknown=unknown_fields)
    if value.pop("personality", None) is not None:
        raise unsupported("personality", "Models have no style presets; use instructions.")
    return validated(_Counted, with_input(value))


def render_input_tokens(count: int) -> bytes:
    return msgspec.json.encode({"object": "response.input_tokens", "input_tokens": count})
