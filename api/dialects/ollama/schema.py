"""Schemas of Ollama's requests. Source: Ollama's page on its API, and the types of its official clients.

As in Ollama, unknown fields and options are ignored; a header of the response names them. Among them are ``keep_alive``
and the options of the memory that a model gets, such as ``num_ctx``: the operator decides on both.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from api.dialects.base import sampling as of
from api.dialects.base.fields import ByType, History, Items, NonEmptyText
from api.dialects.base.neutral import NOT_HERE
from api.dialects.base.unsupported import Refused

_Limit = Annotated[int, Field(ge=-2, le=2**31 - 1), of.Into("max_tokens", lambda count: count if count > 0 else None)]
_Seed = Annotated[int, Field(ge=-(2**63), le=2**63 - 1), of.Into("seed", lambda seed: seed if seed >= 0 else None)]

_Repetition = Annotated[float, Field(gt=0.0, le=100.0), of.Into("repetition_penalty")]


class OllamaOptions(History):
    """Sampling parameters. A limit below 1 means none, and a seed below 0 any."""

    frequency_penalty: of.Penalty | None = None
    min_p: of.MinP | None = None
    mirostat: Annotated[int | None, Refused(NOT_HERE, neutral=(0,))] = None
    num_predict: _Limit | None = None
    presence_penalty: of.Penalty | None = None
    repeat_last_n: Annotated[int | None, Refused("Penalties apply to the whole text.", neutral=(-1,))] = None
    repeat_penalty: _Repetition | None = None
    seed: _Seed | None = None
    stop: of.Stop | None = None
    temperature: of.Temperature | None = None
    top_k: of.TopK | None = None
    top_p: of.TopP | None = None
    typical_p: Annotated[float | None, Refused(NOT_HERE, neutral=(1.0,))] = None


class OllamaRequest(History):
    """What all requests have."""

    model: NonEmptyText
    format: Annotated[Literal["", "json"] | dict[str, Any], ByType("'json' or a JSON Schema")] | None = None
    logprobs: bool | None = None
    options: OllamaOptions | None = None
    stream: bool | None = None
    think: Annotated[Literal["low", "medium", "high"] | bool, ByType("a boolean or a level")] | None = None
    top_logprobs: of.TopLogprobs | None = None


class OllamaCalledFunction(History):
    name: str
    arguments: dict[str, Any] | None = None


class OllamaCall(History):
    function: OllamaCalledFunction


class OllamaMessage(History):
    """``images`` are base64. Results of tools are in the order of their calls, or name the tool."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | None = None
    images: Items[str] | None = None
    thinking: str | None = None
    tool_calls: Items[OllamaCall] | None = None
    tool_name: str | None = None


class OllamaFunction(History):
    name: NonEmptyText
    description: str | None = None
    parameters: dict[str, Any] | None = None


class OllamaTool(History):
    type: Literal["function"] = "function"
    function: OllamaFunction


class OllamaChatRequest(OllamaRequest):
    messages: Annotated[Items[OllamaMessage], Field(min_length=1)]
    tools: Items[OllamaTool] | None = None


class OllamaGenerateRequest(OllamaRequest):
    prompt: NonEmptyText
    context: Annotated[list[int] | None, Refused("Send the conversation to /api/chat.")] = None
    images: Items[str] | None = None
    raw: bool | None = None
    suffix: Annotated[str | None, Refused(NOT_HERE, neutral=("",))] = None
    system: str | None = None
    template: Annotated[str | None, Refused("The model's operator sets the chat template.", neutral=("",))] = None


class OllamaModel(History):
    model: str
