"""Schema of the body of ``POST /v1/responses``.

Source: the types of OpenAI's Python SDK; ``presence_penalty`` and ``frequency_penalty`` are Open Responses'.
``unsupported.py`` lists what the reference has and this service refuses.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, Tag

from api.dialects.base.fields import Identifier, Items, NonEmptyText, Strict, by_key, tag
from api.dialects.base.sampling import Count, Into, Penalty, Temperature, TokenLimit, TopLogprobs, TopP
from api.dialects.openai.schema import (
    JsonObjectResponse,
    Metadata,
    TextResponse,
)
from api.dialects.responses.items import Input
from api.dialects.responses.tools import AnyTool, ToolChoice

MAX_TOOLS = 128

Includable = Literal[
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
]


LOGPROBS = "message.output_text.logprobs"
"""The value of ``include`` that asks for log probabilities."""

ServiceTier = Literal["auto", "default", "flex", "scale", "priority", "fast", "ultrafast"]


class JsonSchemaFormat(Strict):
    """JSON that is valid under a schema."""

    type: Literal["json_schema"]
    name: Identifier
    schema_: Annotated[dict[str, Any], Field(alias="schema")]
    description: str | None = None
    strict: bool | None = None


TextFormat = Annotated[
    Annotated[TextResponse, Tag(tag("text"))]
    | Annotated[JsonObjectResponse, Tag(tag("json_object"))]
    | Annotated[JsonSchemaFormat, Tag(tag("json_schema"))],
    by_key("type", "text", "json_schema", "json_object"),
]


class TextConfig(Strict):
    """Form and length of the text."""

    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ReasoningConfig(Strict):
    """How much the model reasons, and how that is shown."""

    context: Literal["auto", "current_turn", "all_turns"] | None = None
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None
    mode: str | None = None
    summary: Literal["auto", "concise", "detailed", "none"] | None = None


class PromptCacheOptions(Strict):
    """Prompt caching options, of which chat completions have fewer."""

    comparison_response_id: str | None = None
    mode: Literal["implicit", "explicit"] | None = None
    prewarm: bool | None = None
    ttl: Literal["30m", "12h"] | None = None


class ResponseStreamOptions(Strict):
    """Options of a stream."""

    include_obfuscation: bool | None = None


class InputFields(Strict):
    """The input of a model: a conversation, and what precedes it."""

    model: NonEmptyText
    input: Input | None = None
    instructions: str | None = None
    previous_response_id: NonEmptyText | None = None


class PromptFields(InputFields):
    """All that becomes a prompt."""

    conversation: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningConfig | None = None
    text: TextConfig | None = None
    tool_choice: ToolChoice | None = None
    tools: Annotated[Items[AnyTool], Field(max_length=MAX_TOOLS)] | None = None
    truncation: Literal["auto", "disabled"] | None = None


class ProcessingFields(InputFields):
    """An input, and how the service processes it."""

    image: dict[str, Any] | None = None
    prompt_cache_key: str | None = None
    prompt_cache_options: PromptCacheOptions | None = None
    prompt_cache_retention: Literal["in_memory", "24h"] | None = None
    service_tier: ServiceTier | None = None


class ResponsesRequest(PromptFields, ProcessingFields):
    """The body of ``POST /v1/responses``."""

    input: Input
    access_programs: dict[str, Any] | None = None
    background: bool | None = None
    background_options: dict[str, Any] | None = None
    client_metadata: dict[str, str] | None = None
    context_management: Items[dict[str, Any]] | None = None
    frequency_penalty: Penalty | None = None
    include: Annotated[Items[Includable], Into("logprobs", lambda include: LOGPROBS in include)] | None = None
    max_output_tokens: TokenLimit | None = None
    max_tool_calls: Count | None = None
    metadata: Metadata | None = None
    moderation: dict[str, Any] | None = None
    presence_penalty: Penalty | None = None
    prompt: dict[str, Any] | None = None
    safety_identifier: Annotated[str, Field(max_length=128)] | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: ResponseStreamOptions | None = None
    temperature: Temperature | None = None
    top_logprobs: Annotated[TopLogprobs, Into("logprobs", bool)] | None = None
    top_p: TopP | None = None
    user: str | None = None
