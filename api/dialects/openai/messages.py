"""Schemas of conversation messages, one per role."""

from typing import Annotated, Any, Literal

from pydantic import StringConstraints

from api.dialects.base.fields import ByKey, History, Items
from api.dialects.base.unsupported import Refused
from api.dialects.openai.content import Content

TEXT_ONLY = "This service supports text only."

Name = Annotated[str, StringConstraints(pattern=r"^[^\s<|\\/>]+$", max_length=64)] | None
"""Name of a participant. It is part of the prompt, so characters of special tokens are not allowed."""


class SystemMessage(History):
    """Instructions of the application's operator."""

    role: Literal["system"]
    content: Content
    name: Name = None


class DeveloperMessage(History):
    """The newer name of a system message."""

    role: Literal["developer"]
    content: Content
    name: Name = None


class UserMessage(History):
    role: Literal["user"]
    content: Content
    name: Name = None


class CalledFunction(History):
    """A function that the assistant called. ``arguments`` is JSON text as the model generated it, possibly invalid."""

    name: str
    arguments: str


class CalledCustomTool(History):
    """A custom tool that the assistant called, with free text as its input."""

    name: str
    input: str


class FunctionToolCall(History):
    """A call of a function tool."""

    id: str
    type: Literal["function"]
    function: CalledFunction


class CustomToolCall(History):
    """A call of a custom tool."""

    id: str
    type: Literal["custom"]
    custom: CalledCustomTool


MessageToolCall = Annotated[FunctionToolCall | CustomToolCall, ByKey("type")]


class AssistantMessage(History):
    """An earlier message of the assistant.

    ``annotations``, ``reasoning_content`` and ``reasoning``, which responses contain, are not in the reference's
    requests.
    """

    role: Literal["assistant"]
    content: Content | None = None
    name: Name = None
    refusal: str | None = None
    audio: Annotated[dict[str, Any] | None, Refused(TEXT_ONLY)] = None
    tool_calls: Items[MessageToolCall] | None = None
    function_call: CalledFunction | None = None
    annotations: list[dict[str, Any]] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class ToolMessage(History):
    """The result of a tool call. The reference's clients may send the tool's ``name``, which its schema lacks."""

    role: Literal["tool"]
    content: Content
    tool_call_id: str
    name: Name = None


class FunctionMessage(History):
    """The result of a function call; deprecated in the reference."""

    role: Literal["function"]
    content: str | None
    name: str


Message = Annotated[
    SystemMessage | AssistantMessage | UserMessage | FunctionMessage | ToolMessage | DeveloperMessage, ByKey("role")
]
