"""Schema of the input items of the Responses API: messages, tool calls, their results and reasoning.

Source: the types of OpenAI's Python SDK. Items that only OpenAI's hosted tools produce are refused by their type.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from api.dialects.base.fields import ByKey, ByType, History, Items, NonEmptyText, StringOrItems
from api.dialects.base.unsupported import OtherModality, Refused
from api.dialects.openai.content import Breakpoint
from api.dialects.responses.tools import AnyTool

Status = Literal["in_progress", "completed", "incomplete"] | None
Async = Annotated[bool | None, Field(alias="async")]
Extra = dict[str, Any] | None
"""Fields of OpenAI's own items that mean nothing here, such as who has called a tool."""


class InputText(History):
    """Text of the user, the developer or a tool."""

    type: Literal["input_text"]
    text: str
    prompt_cache_breakpoint: Breakpoint = None


class OutputText(History):
    type: Literal["output_text"]
    text: str
    annotations: Items[dict[str, Any]] | None = None
    logprobs: Items[dict[str, Any]] | None = None


class RefusalText(History):
    type: Literal["refusal"]
    refusal: str


class InputImage(History):
    """An image by URL or in a data URL."""

    type: Literal["input_image"]
    detail: Literal["auto", "low", "high", "original"] | None = None
    file_id: Annotated[str | None, Refused("Send the image in 'image_url'.")] = None
    image_url: str | None = None
    prompt_cache_breakpoint: Breakpoint = None


class InputFile(History):
    type: Annotated[Literal["input_file"], OtherModality()]
    detail: Literal["auto", "low", "high"] | None = None
    file_data: str | None = None
    file_id: str | None = None
    file_url: str | None = None
    filename: str | None = None
    prompt_cache_breakpoint: Breakpoint = None


class InputAudioPart(History):
    type: Annotated[Literal["input_audio"], OtherModality()]
    input_audio: dict[str, Any]


ContentPart = Annotated[InputText | InputImage | InputFile | InputAudioPart | OutputText | RefusalText, ByKey("type")]
"""Any part; ``conversation.py`` checks whether the message's role allows it."""

PARTS_BY_ROLE: dict[str, tuple[str, ...]] = {
    "system": ("input_text",),
    "developer": ("input_text",),
    "user": ("input_text", "input_image", "input_file", "input_audio"),
    "assistant": ("output_text", "refusal", "input_text"),
}
"""The part types that each role allows. Clients send earlier text of the model as ``input_text`` too."""

MessageContent = StringOrItems[ContentPart]


class MessageItem(History):
    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: MessageContent
    id: str | None = None
    phase: Literal["commentary", "final_answer"] | None = None
    status: Status = None


class CallItem(History):
    """What the calls of function tools and of custom tools have in common."""

    call_id: NonEmptyText
    name: NonEmptyText
    id: str | None = None
    async_: Async = None
    caller: Extra = None
    namespace: str | None = None
    status: Status = None


class FunctionCall(CallItem):
    """A call of a function tool. ``arguments`` is JSON text as the model generated it, possibly invalid."""

    type: Literal["function_call"]
    arguments: str
    created_by: str | None = None


class CustomCall(CallItem):
    """A call of a custom tool, with free text as its input."""

    type: Literal["custom_tool_call"]
    input: str


OutputPart = Annotated[InputText | InputImage | InputFile, ByKey("type")]


class CallOutput(History):
    """What the results of both kinds of calls have in common."""

    call_id: NonEmptyText
    output: StringOrItems[OutputPart]
    id: str | None = None
    caller: Extra = None
    created_by: str | None = None
    name: str | None = None
    status: Status = None


class FunctionCallOutput(CallOutput):
    type: Literal["function_call_output"]
    namespace: str | None = None


class CustomCallOutput(CallOutput):
    type: Literal["custom_tool_call_output"]


class SummaryText(History):
    type: Literal["summary_text"]
    text: str


class ReasoningText(History):
    type: Literal["reasoning_text", "text"]
    text: str


class ReasoningItem(History):
    type: Literal["reasoning"]
    summary: Items[SummaryText] | None = None
    content: Items[ReasoningText] | None = None
    encrypted_content: str | None = None
    id: str | None = None
    status: Status = None


class AdditionalTools(History):
    """More tools, in the middle of the conversation."""

    type: Literal["additional_tools"]
    role: Literal["developer"]
    tools: Items[AnyTool]
    id: str | None = None


class ItemReference(History):
    """An item of a stored response, by its id."""

    type: Literal["item_reference"] | None = None
    id: NonEmptyText


def _untyped(item: Mapping[str, Any]) -> str | None:
    """Return the type of an item without one, which messages and references may be."""
    if "role" in item:
        return "message"
    return "item_reference" if {name for name, given in item.items() if given is not None} == {"id"} else None


Item = Annotated[
    MessageItem
    | FunctionCall
    | FunctionCallOutput
    | ReasoningItem
    | CustomCall
    | CustomCallOutput
    | AdditionalTools
    | ItemReference,
    ByKey("type", untyped=_untyped),
]

Input = Annotated[str | Annotated[Items[Item], Field(max_length=2048)], ByType("one of a string or array of objects")]
