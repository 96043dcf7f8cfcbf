"""Schema of Anthropic's Messages requests.

Source: the types of Anthropic's Python SDK.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from api.dialects.anthropic.blocks import NO_SERVER_TOOLS, AssistantBlock, CacheControl, TextBlock, UserBlock
from api.dialects.anthropic.errors import UNTHREADED
from api.dialects.base.fields import ByKey, ByType, History, Items, NonEmptyText, Strict, StringOrItems
from api.dialects.base.sampling import MAX_COUNT, Into, StopText, TopP
from api.dialects.base.unsupported import Only, Refused

MAX_STOP_SEQUENCES = 16


SystemContent = StringOrItems[TextBlock]


class AnthropicUser(History):
    """A message of the user, with the results of tool calls."""

    role: Literal["user"]
    content: Annotated[
        str | Annotated[Items[UserBlock], Field(min_length=1)], ByType("one of a string or array of objects")
    ]


class AnthropicAssistant(History):
    role: Literal["assistant"]
    content: StringOrItems[AssistantBlock]


class AnthropicSystem(History):
    """Instructions in the middle of a conversation."""

    role: Literal["system"]
    content: SystemContent
    clear_at: Literal["next_user_message", "never"] | None = None
    """Whether the model sees the message only until the user says something else."""
    output_config: Annotated[
        dict[str, Any] | None, Refused("The form of the output is that of the request.", neutral=({},))
    ] = None


Message = Annotated[AnthropicUser | AnthropicAssistant | AnthropicSystem, ByKey("role")]


class MessagesTool(Strict):
    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]+$", min_length=1, max_length=128)]
    type: Literal["custom"] | None = None
    description: str | None = None
    input_schema: dict[str, Any]
    strict: bool | None = None
    cache_control: CacheControl | None = None
    allowed_callers: Annotated[
        Items[str] | None, Refused("Code execution is not available.", neutral=(["direct"],))
    ] = None
    defer_loading: bool | None = None
    eager_input_streaming: bool | None = None
    input_examples: Annotated[
        Items[dict[str, Any]] | None, Refused("Put examples into the tool's description.", neutral=([],))
    ] = None


class AnthropicTool(BaseModel):
    """A tool that runs on Anthropic's servers, or that only its models know."""

    model_config = ConfigDict(strict=True, frozen=True)
    type: Annotated[str, Refused(NO_SERVER_TOOLS)]


AnyTool = Annotated[MessagesTool | AnthropicTool, ByKey("type", untyped=lambda _: "custom")]


class FreeChoice(Strict):
    """The model decides whether it calls tools (``auto``), or which one it calls (``any``)."""

    type: Literal["auto", "any"]
    disable_parallel_tool_use: bool | None = None


class NamedChoice(Strict):
    """The model must call this tool."""

    type: Literal["tool"]
    name: NonEmptyText
    disable_parallel_tool_use: bool | None = None


class NoChoice(Strict):
    """The model must not call tools."""

    type: Literal["none"]


ToolChoice = Annotated[FreeChoice | NamedChoice | NoChoice, ByKey("type")]


ThinkingDisplay = Literal["summarized", "omitted", "updates"]


_SHOWN_THINKING = Only(("summarized", "omitted"), "Models here write no updates.")


class EnabledThinking(Strict):
    """Reasoning. The budget is a target: it has no effect where a worker has no access to its model's logits."""

    type: Literal["enabled"]
    budget_tokens: Annotated[int, Field(ge=1024, le=MAX_COUNT)]
    block_binding: dict[str, Any] | None = None
    display: Annotated[ThinkingDisplay | None, _SHOWN_THINKING] = None


class AdaptiveThinking(Strict):
    """Reasoning where the model finds it useful."""

    type: Literal["adaptive"]
    block_binding: dict[str, Any] | None = None
    display: Annotated[ThinkingDisplay | None, _SHOWN_THINKING] = None


class DisabledThinking(Strict):
    type: Literal["disabled"]


Thinking = Annotated[EnabledThinking | AdaptiveThinking | DisabledThinking, ByKey("type")]


class AnthropicOutput(Strict):
    type: Literal["json_schema"]
    schema_: Annotated[dict[str, Any], Field(alias="schema")]


class OutputConfig(Strict):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: AnthropicOutput | None = None
    task_budget: Annotated[dict[str, Any] | None, Refused("Models here know no budget.")] = None


class Metadata(Strict):
    """Who sends the request."""

    user_id: Annotated[str, Field(max_length=512)] | None = None


_UNEDITED: tuple[dict[str, Any], ...] = (
    {},
    {"edits": []},
    {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
)
"""Edits of the context that change nothing."""


class CountTokensRequest(Strict):
    """The body of ``POST /v1/messages/count_tokens``: what becomes the prompt."""

    answered_calls: ClassVar[bool] = False
    """Whether each call must have a result. Clients count single messages, too."""

    model: NonEmptyText
    messages: Annotated[Items[Message], Field(min_length=1)]
    system: SystemContent | None = None
    tools: Items[AnyTool] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: AnthropicOutput | None = None
    """``output_config.format`` by its name in SDKs of 2025."""
    billing_policy: Annotated[
        dict[str, Any] | None, Refused("Nothing is billed.", neutral=({"type": "billing_policy", "bill_to": "self"},))
    ] = None
    cache_control: CacheControl | None = None
    compaction: dict[str, Any] | None = None
    """Counts ignore it, by the reference."""
    context_management: Annotated[
        dict[str, Any] | None, Refused("The service does not edit the context.", neutral=_UNEDITED)
    ] = None
    mcp_servers: Annotated[
        Items[dict[str, Any]] | None, Refused("The service does not connect to MCP servers.", neutral=([],))
    ] = None
    speed: Annotated[Literal["standard", "fast"] | None, Only(("standard",), "There is one inference speed.")] = None
    thread: Annotated[
        dict[str, Any] | None, Refused("Conversations are not stored; send all messages.", code=UNTHREADED)
    ] = None
    user_profile_id: Annotated[str | None, Refused("User profiles are not available.")] = None
    workspace_id: Annotated[str | None, Refused("Workspaces are not available.")] = None


def _at_least_one(count: int) -> int:
    """No tokens fill the prefix cache only, as one does that is not shown."""
    return max(count, 1)


class MessagesRequest(CountTokensRequest):
    """The body of ``POST /v1/messages``."""

    answered_calls: ClassVar[bool] = True

    compaction: Annotated[dict[str, Any] | None, Refused("Ask for a summary in a message.")] = None
    max_tokens: Annotated[int, Field(ge=0, le=MAX_COUNT), Into(convert=_at_least_one)]
    metadata: Metadata | None = None
    stop_sequences: Annotated[Items[StopText], Field(max_length=MAX_STOP_SEQUENCES), Into("stop", tuple)] | None = None
    stream: bool | None = None
    temperature: Annotated[float, Field(ge=0.0, le=1.0), Into()] | None = None
    top_k: Annotated[int, Field(ge=0, le=MAX_COUNT), Into()] | None = None
    top_p: TopP | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    container: Annotated[str | dict[str, Any] | None, Refused("Code execution is not available.")] = None
    diagnostics: Annotated[dict[str, Any] | None, Refused("Cache diagnostics are not available.")] = None
    fallback_credit_token: Annotated[str | dict[str, Any] | None, Refused("Nothing is billed.")] = None
    fallbacks: Annotated[
        StringOrItems[dict[str, Any]] | None,
        Refused("Requests run on the model that they name.", neutral=("default", [])),
    ] = None
    inference_geo: Annotated[
        str | None, Refused("Requests run on this service's own workers.", neutral=("global",))
    ] = None
