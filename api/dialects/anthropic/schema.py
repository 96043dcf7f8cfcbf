"""Schema of Anthropic's Messages requests.

Source: the types of Anthropic's Python SDK. ``unsupported.py`` lists what the reference has and this service refuses.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from api.dialects.anthropic.blocks import AssistantBlock, CacheControl, TextBlock, UserBlock
from api.dialects.base.fields import (
    ARRAY,
    STRING,
    Items,
    NonEmptyText,
    Strict,
    StringOrItems,
    by_key,
    by_type,
    tag,
)
from api.dialects.base.sampling import MAX_COUNT, Into, StopText, TopP

MAX_STOP_SEQUENCES = 16


SystemContent = StringOrItems[TextBlock]


class UserMessage(Strict):
    """A message of the user, with the results of tool calls."""

    role: Literal["user"]
    content: Annotated[
        Annotated[str, Tag(STRING)] | Annotated[Items[UserBlock], Field(min_length=1), Tag(ARRAY)],
        by_type("one of a string or array of objects", {str: STRING, list: ARRAY}),
    ]


class AssistantMessage(Strict):
    """An earlier message of the assistant."""

    role: Literal["assistant"]
    content: StringOrItems[AssistantBlock]


class SystemMessage(Strict):
    """Instructions in the middle of a conversation."""

    role: Literal["system"]
    content: SystemContent
    clear_at: Literal["next_user_message", "never"] | None = None
    """Whether the model sees the message only until the user says something else."""
    output_config: dict[str, Any] | None = None


Message = Annotated[
    Annotated[UserMessage, Tag(tag("user"))]
    | Annotated[AssistantMessage, Tag(tag("assistant"))]
    | Annotated[SystemMessage, Tag(tag("system"))],
    by_key("role", "user", "assistant", "system"),
]


class Tool(Strict):
    """A tool of the client."""

    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]+$", min_length=1, max_length=128)]
    type: Literal["custom"] | None = None
    description: str | None = None
    input_schema: dict[str, Any]
    strict: bool | None = None
    cache_control: CacheControl | None = None
    allowed_callers: Items[str] | None = None
    defer_loading: bool | None = None
    eager_input_streaming: bool | None = None
    input_examples: Items[dict[str, Any]] | None = None


class AnthropicTool(BaseModel):
    """A tool that runs on Anthropic's servers, or that only its models know."""

    model_config = ConfigDict(strict=True, frozen=True)
    type: str


def _tool_kind(value: Any) -> str:
    kind = value.get("type") if isinstance(value, Mapping) else None
    return tag("anthropic") if isinstance(kind, str) and kind != "custom" else tag("custom")


AnyTool = Annotated[
    Annotated[Tool, Tag(tag("custom"))] | Annotated[AnthropicTool, Tag(tag("anthropic"))], Discriminator(_tool_kind)
]


class AutoChoice(Strict):
    """The model decides whether it calls tools."""

    type: Literal["auto"]
    disable_parallel_tool_use: bool | None = None


class AnyChoice(Strict):
    """The model must call a tool."""

    type: Literal["any"]
    disable_parallel_tool_use: bool | None = None


class NamedChoice(Strict):
    """The model must call this tool."""

    type: Literal["tool"]
    name: NonEmptyText
    disable_parallel_tool_use: bool | None = None


class NoChoice(Strict):
    """The model must not call tools."""

    type: Literal["none"]


ToolChoice = Annotated[
    Annotated[AutoChoice, Tag(tag("auto"))]
    | Annotated[AnyChoice, Tag(tag("any"))]
    | Annotated[NamedChoice, Tag(tag("tool"))]
    | Annotated[NoChoice, Tag(tag("none"))],
    by_key("type", "auto", "any", "tool", "none"),
]


ThinkingDisplay = Literal["summarized", "omitted", "updates"]


class EnabledThinking(Strict):
    """Reasoning. The budget is a target that models here do not know; ``max_tokens`` bounds reasoning and text."""

    type: Literal["enabled"]
    budget_tokens: Annotated[int, Field(ge=1024, le=MAX_COUNT)]
    block_binding: dict[str, Any] | None = None
    display: ThinkingDisplay | None = None


class AdaptiveThinking(Strict):
    """Reasoning where the model finds it useful."""

    type: Literal["adaptive"]
    block_binding: dict[str, Any] | None = None
    display: ThinkingDisplay | None = None


class DisabledThinking(Strict):
    """No reasoning."""

    type: Literal["disabled"]


Thinking = Annotated[
    Annotated[EnabledThinking, Tag(tag("enabled"))]
    | Annotated[AdaptiveThinking, Tag(tag("adaptive"))]
    | Annotated[DisabledThinking, Tag(tag("disabled"))],
    by_key("type", "enabled", "adaptive", "disabled"),
]


class OutputFormat(Strict):
    """JSON that follows a schema."""

    type: Literal["json_schema"]
    schema_: Annotated[dict[str, Any], Field(alias="schema")]


class OutputConfig(Strict):
    """Effort and form of the output."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: OutputFormat | None = None
    task_budget: dict[str, Any] | None = None


class Metadata(Strict):
    """Who sends the request."""

    user_id: Annotated[str, Field(max_length=512)] | None = None


class CountTokensRequest(Strict):
    """The body of ``POST /v1/messages/count_tokens``: what becomes the prompt."""

    model: NonEmptyText
    messages: Annotated[Items[Message], Field(min_length=1)]
    system: SystemContent | None = None
    tools: Items[AnyTool] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None
    """``output_config.format`` by its name in SDKs of 2025."""
    billing_policy: dict[str, Any] | None = None
    cache_control: CacheControl | None = None
    compaction: dict[str, Any] | None = None
    context_management: dict[str, Any] | None = None
    mcp_servers: Items[dict[str, Any]] | None = None
    speed: Literal["standard", "fast"] | None = None
    thread: dict[str, Any] | None = None
    user_profile_id: str | None = None
    workspace_id: str | None = None


def _at_least_one(count: int) -> int:
    """No tokens fill the prefix cache only, as one does that is not shown."""
    return max(count, 1)


class MessagesRequest(CountTokensRequest):
    """The body of ``POST /v1/messages``."""

    max_tokens: Annotated[int, Field(ge=0, le=MAX_COUNT), Into(convert=_at_least_one)]
    metadata: Metadata | None = None
    stop_sequences: Annotated[Items[StopText], Field(max_length=MAX_STOP_SEQUENCES), Into("stop", tuple)] | None = None
    stream: bool | None = None
    temperature: Annotated[float, Field(ge=0.0, le=1.0), Into()] | None = None
    top_k: Annotated[int, Field(ge=0, le=MAX_COUNT), Into()] | None = None
    top_p: TopP | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    container: str | dict[str, Any] | None = None
    diagnostics: dict[str, Any] | None = None
    fallback_credit_token: str | dict[str, Any] | None = None
    fallbacks: StringOrItems[dict[str, Any]] | None = None
    inference_geo: str | None = None
