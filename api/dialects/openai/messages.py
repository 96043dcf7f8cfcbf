"""Schemas of conversation messages, one per role."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints

from api.dialects.base.fields import ByKey, Items, NotNull, Strict
from api.dialects.base.unsupported import Refused
from api.dialects.openai.content import Content

TEXT_ONLY = "This service supports text only."

Name = Annotated[
    Annotated[str, StringConstraints(pattern=r"^[^\s<|\\/>]+$", max_length=64)] | None, NotNull("a string")
]
"""Name of a participant. It is part of the prompt, so characters of special tokens are not allowed."""


class SystemMessage(Strict):
    """Instructions of the application's operator."""

    role: Literal["system"]
    content: Content
    name: Name = None


class DeveloperMessage(Strict):
    """The newer name of a system message."""

    role: Literal["developer"]
    content: Content
    name: Name = None


class UserMessage(Strict):
    role: Literal["user"]
    content: Content
    name: Name = None


class CalledFunction(Strict):
    """A function that the assistant called. ``arguments`` is JSON text as the model generated it, possibly invalid.

    ``parsed_arguments`` is not in the reference. Its SDKs add it to responses, and send it back in the history.
    """

    name: str
    arguments: str
    parsed_arguments: Any = None


class CalledCustomTool(Strict):
    """A custom tool that the assistant called, with free text as its input."""

    name: str
    input: str


class FunctionToolCall(Strict):
    """A call of a function tool. ``index`` is not in the reference's requests: chunks of streams have it."""

    id: str
    type: Literal["function"]
    function: CalledFunction
    index: int | None = None


class CustomToolCall(Strict):
    """A call of a custom tool. ``index`` as in :class:`FunctionToolCall`."""

    id: str
    type: Literal["custom"]
    index: int | None = None
    custom: CalledCustomTool


MessageToolCall = Annotated[FunctionToolCall | CustomToolCall, ByKey("type")]


def _without_message_fields(content: object) -> object:
    """Return ``content`` without fields of the message in its text parts: clients copy them there from a response."""
    if not isinstance(content, list):
        return content
    return [
        {key: value for key, value in part.items() if key not in _MESSAGE_FIELDS}
        if isinstance(part, dict) and part.get("type") == "text"
        else part
        for part in content
    ]


class AssistantMessage(Strict):
    """An earlier message of the assistant, with what clients send back because the response contained it.

    Not in the reference's requests are ``annotations``, ``reasoning_content`` and ``reasoning``, which responses
    contain, ``parsed``, which its SDKs add to responses, ``provider_specific_fields`` and ``thinking_blocks``, which
    LiteLLM adds, and OpenRouter's ``reasoning_details``. What these four say is in other fields, too. SDKs also send
    ``tool_calls`` as null.
    """

    role: Literal["assistant"]
    content: Annotated[Content | None, BeforeValidator(_without_message_fields)] = None
    name: Name = None
    refusal: str | None = None
    audio: Annotated[dict[str, Any] | None, Refused(TEXT_ONLY)] = None
    tool_calls: Annotated[Items[MessageToolCall], Field(min_length=1)] | None = None
    function_call: CalledFunction | None = None
    annotations: list[dict[str, Any]] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: Any = None
    parsed: Any = None
    provider_specific_fields: dict[str, Any] | None = None
    thinking_blocks: list[dict[str, Any]] | None = None


_MESSAGE_FIELDS = AssistantMessage.model_fields.keys() - {"content"}


class ToolMessage(Strict):
    """The result of a tool call. The reference's clients may send the tool's ``name``, which its schema lacks."""

    role: Literal["tool"]
    content: Content
    tool_call_id: str
    name: Name = None


class FunctionMessage(Strict):
    """The result of a function call; deprecated in the reference."""

    role: Literal["function"]
    content: str | None
    name: str


Message = Annotated[
    SystemMessage | AssistantMessage | UserMessage | FunctionMessage | ToolMessage | DeveloperMessage, ByKey("role")
]
