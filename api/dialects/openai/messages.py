"""Schemas of conversation messages, one per role."""

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, Tag

from api.dialects.openai.content import AudioReference, Content
from api.dialects.openai.fields import Items, NotNull, Strict, by_key, tag

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
    """A message of the user."""

    role: Literal["user"]
    content: Content
    name: Name = None


class CalledFunction(Strict):
    """A function that the assistant called. ``arguments`` is JSON text as the model generated it, possibly invalid."""

    name: str
    arguments: str


class CalledCustomTool(Strict):
    """A custom tool that the assistant called, with free text as its input."""

    name: str
    input: str


class FunctionToolCall(Strict):
    """A call of a function tool."""

    id: str
    type: Literal["function"]
    function: CalledFunction


class CustomToolCall(Strict):
    """A call of a custom tool."""

    id: str
    type: Literal["custom"]
    custom: CalledCustomTool


MessageToolCall = Annotated[
    Annotated[FunctionToolCall, Tag(tag("function"))] | Annotated[CustomToolCall, Tag(tag("custom"))],
    by_key("type", "function", "custom"),
]


class AssistantMessage(Strict):
    """An earlier message of the assistant.

    ``annotations`` and ``reasoning_content`` are not in the reference's requests. Responses contain them, so clients
    send them back in the history.
    """

    role: Literal["assistant"]
    content: Content | None = None
    name: Name = None
    refusal: str | None = None
    audio: AudioReference | None = None
    tool_calls: Annotated[
        Annotated[Items[MessageToolCall], Field(min_length=1)] | None, NotNull("an array of objects")
    ] = None
    function_call: CalledFunction | None = None
    annotations: list[dict[str, Any]] | None = None
    reasoning_content: str | None = None


class ToolMessage(Strict):
    """The result of a tool call."""

    role: Literal["tool"]
    content: Content
    tool_call_id: str


class FunctionMessage(Strict):
    """The result of a function call; deprecated in the reference."""

    role: Literal["function"]
    content: str | None
    name: str


Message = Annotated[
    Annotated[SystemMessage, Tag(tag("system"))]
    | Annotated[AssistantMessage, Tag(tag("assistant"))]
    | Annotated[UserMessage, Tag(tag("user"))]
    | Annotated[FunctionMessage, Tag(tag("function"))]
    | Annotated[ToolMessage, Tag(tag("tool"))]
    | Annotated[DeveloperMessage, Tag(tag("developer"))],
    by_key("role", "system", "assistant", "user", "function", "tool", "developer"),
]
