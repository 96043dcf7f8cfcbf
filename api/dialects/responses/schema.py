"""Schema of the body of ``POST /v1/responses``.

Source: the types of OpenAI's Python SDK; ``presence_penalty`` and ``frequency_penalty`` are Open Responses',
``ignore_eos``, ``include_stop_str_in_output``, ``logit_bias``, ``min_p``, ``repetition_penalty``, ``seed``,
``skip_special_tokens``, ``stop`` and ``top_k`` are vLLM's.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from api.dialects.base.fields import ByKey, Identifier, Items, NonEmptyText, Strict
from api.dialects.base.neutral import NeutralFields
from api.dialects.base.sampling import (
    Count,
    Flag,
    Into,
    LogitBias,
    MinP,
    Penalty,
    RepetitionPenalty,
    Seed,
    Stop,
    StopFlag,
    Temperature,
    TokenLimit,
    TopK,
    TopLogprobs,
    TopP,
)
from api.dialects.base.unsupported import CACHED_ALWAYS, CHATS_ONLY, Only, Refused
from api.dialects.openai.schema import (
    SERVED_TIERS,
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
    type: Literal["json_schema"]
    name: Identifier | None = None
    schema_: Annotated[dict[str, Any], Field(alias="schema")]
    description: str | None = None
    strict: bool | None = None


TextFormat = Annotated[TextResponse | JsonSchemaFormat | JsonObjectResponse, ByKey("type")]


class TextConfig(Strict):
    """Form and length of the text."""

    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ReasoningConfig(Strict):
    """How much the model reasons, and how that is shown."""

    context: Annotated[
        Literal["auto", "current_turn", "all_turns"] | None,
        Only(("auto",), "The model's chat template decides which reasoning it repeats."),
    ] = None
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None
    mode: Annotated[str | None, Only(("standard",), "There is one reasoning mode.")] = None
    summary: Literal["auto", "concise", "detailed", "none"] | None = None


_IMPLICIT: tuple[dict[str, Any], ...] = (
    {},
    {"mode": "implicit"},
    {"prewarm": False},
    {"mode": "implicit", "prewarm": False},
)
"""Prompt caching options that describe the default behaviour."""


class ResponseStreamOptions(Strict):
    include_obfuscation: Annotated[bool | None, CHATS_ONLY] = None


class InputFields(Strict):
    """The input of a model: a conversation, and what precedes it."""

    model: NonEmptyText
    input: Input | None = None
    instructions: str | None = None
    previous_response_id: NonEmptyText | None = None


class PromptFields(InputFields):
    conversation: Annotated[str | dict[str, Any] | None, Refused("Conversations are not stored; send their items.")] = (
        None
    )
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningConfig | None = None
    text: TextConfig | None = None
    tool_choice: ToolChoice | None = None
    tools: Annotated[Items[AnyTool], Field(max_length=MAX_TOOLS)] | None = None
    truncation: Literal["auto", "disabled"] | None = None


class ProcessingFields(InputFields):
    """An input, and how the service processes it."""

    image: Annotated[
        dict[str, Any] | None,
        Refused("Images are prepared as the model needs them.", neutral=({}, {"context_compression": "auto"})),
    ] = None
    prompt_cache_key: str | None = None
    prompt_cache_options: Annotated[dict[str, Any] | None, Refused(CACHED_ALWAYS, neutral=_IMPLICIT)] = None
    prompt_cache_retention: Annotated[Literal["in_memory", "24h"] | None, Only(("in_memory",), CACHED_ALWAYS)] = None
    service_tier: Annotated[ServiceTier | None, SERVED_TIERS] = None


class ResponsesRequest(PromptFields, ProcessingFields, NeutralFields):
    """The body of ``POST /v1/responses``."""

    answered_calls: ClassVar[bool] = True
    """Whether each call in the input must have an output."""

    input: Input
    access_programs: Annotated[dict[str, Any] | None, Refused("Access programs are not available.")] = None
    background: bool | None = None
    background_options: Annotated[
        dict[str, Any] | None,
        Refused("Background responses run as soon as possible.", neutral=({}, {"completion_window": "soonest"})),
    ] = None
    client_metadata: dict[str, str] | None = None
    context_management: Annotated[
        Items[dict[str, Any]] | None, Refused("Conversations are not compacted.", neutral=([],))
    ] = None
    frequency_penalty: Penalty | None = None
    ignore_eos: Flag | None = None
    include: Annotated[Items[Includable], Into("logprobs", lambda include: LOGPROBS in include)] | None = None
    include_stop_str_in_output: StopFlag | None = None
    logit_bias: LogitBias | None = None
    max_output_tokens: TokenLimit | None = None
    max_tool_calls: Count | None = None
    metadata: Metadata | None = None
    min_p: MinP | None = None
    moderation: Annotated[dict[str, Any] | None, Refused("No moderation model is available.")] = None
    presence_penalty: Penalty | None = None
    prompt: Annotated[
        dict[str, Any] | None, Refused("Prompt templates are not stored; send instructions and input.")
    ] = None
    repetition_penalty: RepetitionPenalty | None = None
    safety_identifier: Annotated[str, Field(max_length=128)] | None = None
    seed: Seed | None = None
    skip_special_tokens: Flag | None = None
    stop: Stop | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: ResponseStreamOptions | None = None
    temperature: Temperature | None = None
    top_k: TopK | None = None
    top_logprobs: Annotated[TopLogprobs, Into("logprobs", bool)] | None = None
    top_p: TopP | None = None
    user: str | None = None
