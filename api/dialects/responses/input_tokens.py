"""Counting the tokens of an input, at ``/v1/responses/input_tokens``."""

from typing import Annotated, Any, Literal

import msgspec
from pydantic import Field

from api.dialects.openai.body import decode_object
from api.dialects.openai.fields import Items, NonEmptyText, Strict
from api.dialects.openai.unserved import unsupported
from api.dialects.openai.validation import check_names
from api.dialects.responses.items import Input
from api.dialects.responses.parse import Draft, draft_of, with_input
from api.dialects.responses.schema import MAX_TOOLS, ReasoningConfig, ResponsesRequest, TextConfig
from api.dialects.responses.tools import AnyTool, ToolChoice


class InputTokensRequest(Strict):
    """The body of ``POST /v1/responses/input_tokens``. Its fields are those of a :class:`ResponsesRequest`."""

    model: NonEmptyText
    conversation: str | dict[str, Any] | None = None
    input: Input | None = None
    instructions: str | None = None
    parallel_tool_calls: bool | None = None
    personality: str | None = None
    previous_response_id: NonEmptyText | None = None
    reasoning: ReasoningConfig | None = None
    text: TextConfig | None = None
    tool_choice: ToolChoice | None = None
    tools: Annotated[Items[AnyTool], Field(max_length=MAX_TOOLS)] | None = None
    truncation: Literal["auto", "disabled"] | None = None


def draft_input_tokens(body: bytes) -> Draft[ResponsesRequest]:
    """Validate a body and return the draft of the request for a response.

    Raises :class:`RequestRefused` and no other exception.
    """
    value = decode_object(body)
    check_names(InputTokensRequest, value)
    if value.pop("personality", None) is not None:
        raise unsupported("personality", "Models have no style presets; use instructions.")
    return draft_of(ResponsesRequest, with_input(value))


def render_input_tokens(count: int) -> bytes:
    """Return the answer as JSON."""
    return msgspec.json.encode({"object": "response.input_tokens", "input_tokens": count})
