"""Schema of the chat completion request, after the reference and the newest official SDK.

Bounds are those of the reference. Objects that are refused afterwards are validated as objects only.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from api.dialects.base.fields import ByKey, ByType, Identifier, Items, NonEmptyText, Strict
from api.dialects.base.sampling import Flag, LogitBias, Penalty, Seed, Stop, Temperature, TokenLimit, TopLogprobs, TopP
from api.dialects.base.unsupported import CACHED_ALWAYS, Only, Refused
from api.dialects.openai.content import TextPart
from api.dialects.openai.messages import TEXT_ONLY, Message
from api.dialects.openai.tools import FunctionCallChoice, Functions, ToolChoice, Tools

MAX_MESSAGES = 2048
"""Maximum number of messages, the OpenAI service's limit."""

MetadataKey = Annotated[str, Field(max_length=64)]
MetadataValue = Annotated[str, Field(max_length=512)]
Metadata = Annotated[dict[MetadataKey, MetadataValue], Field(max_length=16)]


SERVED_TIERS = Only(("auto", "default", "flex", "priority", "fast"), "No reserved capacity is available.")


class TextResponse(Strict):
    type: Literal["text"]


class JsonObjectResponse(Strict):
    """Any object, or one that follows a ``schema``, as in llama.cpp."""

    type: Literal["json_object"]
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None


class JsonSchema(Strict):
    """The reference requires a name. It has no effect."""

    name: Identifier | None = None
    description: str | None = None
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    strict: bool | None = None


class JsonSchemaResponse(Strict):
    type: Literal["json_schema"]
    json_schema: JsonSchema


ResponseFormat = Annotated[JsonObjectResponse | JsonSchemaResponse | TextResponse, ByKey("type")]


class StreamOptions(Strict):
    """Of a stream. ``continuous_usage_stats`` is vLLM's."""

    continuous_usage_stats: bool | None = None
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class Prediction(Strict):
    """Predicted output: text that the response will largely repeat.

    It has no effect: the prompt lookup of OpenVINO GenAI finds candidates only in prompt and output.
    """

    type: Literal["content"]
    content: Annotated[
        str | Annotated[Items[TextPart], Field(min_length=1)], ByType("one of a string or array of objects")
    ]


class ChatCompletionRequest(Strict):
    """The body of ``POST /v1/chat/completions``."""

    answered_calls: ClassVar[bool] = True
    """Whether each call in the history must have a result."""

    model: NonEmptyText
    messages: Annotated[Items[Message], Field(min_length=1, max_length=MAX_MESSAGES)]
    audio: Annotated[dict[str, Any] | None, Refused(TEXT_ONLY)] = None
    frequency_penalty: Penalty | None = None
    function_call: FunctionCallChoice | None = None
    functions: Functions | None = None
    logit_bias: LogitBias | None = None
    logprobs: Flag | None = None
    max_completion_tokens: TokenLimit | None = None
    max_tokens: TokenLimit | None = None
    metadata: Metadata | None = None
    modalities: Annotated[
        Annotated[Items[Literal["text", "audio"]], Field(min_length=1)] | None, Refused(TEXT_ONLY, neutral=(["text"],))
    ] = None
    moderation: Annotated[dict[str, Any] | None, Refused("No moderation model is available.")] = None
    n: Annotated[int, Field(ge=1, le=128)] | None = None
    parallel_tool_calls: bool | None = None
    prediction: Prediction | None = None
    presence_penalty: Penalty | None = None
    prompt_cache_key: Annotated[str, Field(max_length=64)] | None = None
    prompt_cache_options: Annotated[
        dict[str, Any] | None, Refused(CACHED_ALWAYS, neutral=({}, {"mode": "implicit"}))
    ] = None
    prompt_cache_retention: Annotated[Literal["in_memory", "24h"] | None, Only(("in_memory",), CACHED_ALWAYS)] = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    response_format: ResponseFormat | None = None
    safety_identifier: Annotated[str, Field(max_length=128)] | None = None
    seed: Seed | None = None
    service_tier: Annotated[Literal["auto", "default", "flex", "scale", "priority", "fast"] | None, SERVED_TIERS] = None
    stop: Stop | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Temperature | None = None
    tool_choice: ToolChoice | None = None
    tools: Tools | None = None
    top_logprobs: TopLogprobs | None = None
    top_p: TopP | None = None
    user: str | None = None
    verbosity: Literal["low", "medium", "high"] | None = None
    web_search_options: Annotated[dict[str, Any] | None, Refused("Web search is not available.")] = None
