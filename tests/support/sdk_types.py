"""The official SDKs' types, as a check of all that is sent: strictly of the right type, with no field unknown, and
where a test asks for it, none absent. And what Azure's accept.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, TypeVar

from azure.ai.inference.models import ChatRequestMessage
from openai.types import Completion, CompletionChoice
from pydantic import BaseModel, TypeAdapter

ADDED = {
    "max_model_len",
    "input_modalities",
    "kinds",
    "formats",
    "reasoning",
    "reasoning_content",
    # Fields of OpenAI's responses and of the Open Responses specification.
    "bytes",
    "error",
    "frequency_penalty",
    "name",
    "presence_penalty",
    "store",
    # Fields that only Anthropic's beta types have.
    "allowed_fallback_models",
    "compaction",
    "context_management",
    "estimated_tokens",
    "fallback_credit",
    "iterations",
}
"""Fields that the SDK does not have, but that other servers and their clients do."""

_WHERE_IT_APPLIES = {"moderation", "metadata", "service_tier", "usage"}
_ITEMS = (
    "ResponseInputMessageItem",
    "ResponseFunctionToolCallItem",
    "ResponseFunctionToolCallOutputItem",
    "ResponseCustomToolCallItem",
    "ResponseCustomToolCallOutputItem",
)
OMITTED: Mapping[str, set[str]] = {
    "ChatCompletion": _WHERE_IT_APPLIES,
    "ChatCompletionChunk": _WHERE_IT_APPLIES | {"obfuscation"},
    "ChatCompletionMessage": {"audio", "function_call", "tool_calls"},
    "ChoiceDelta": {"audio", "content", "function_call", "refusal", "role", "tool_calls"},
    "ChoiceDeltaFunctionCall": {"arguments", "name"},
    "ChoiceDeltaToolCall": {"id", "type"},
    "ChoiceDeltaToolCallFunction": {"name"},
    "CompletionChunk": {"usage"},
    "CompletionTokensDetails": {"text_tokens"},
    "PromptTokensDetails": {"cache_write_tokens", "image_tokens", "text_tokens"},
    "Model": {"shutdown_date"},
    "Response": {
        *("conversation", "image", "input_transformations", "moderation", "prompt", "prompt_cache_diagnostics"),
        *("prompt_cache_options", "tool_usage"),
    },
    "FunctionTool": {"allowed_callers", "async_", "defer_loading", "output_schema"},
    "ResponseError": {"misalignment", "param", "type"},
    "ResponseOutputMessage": {"phase"},
    "Reasoning": {"context", "generate_summary", "mode"},
    "ResponseReasoningSummaryPartDoneEvent": {"status"},
    "ResponseReasoningItem": {"content", "encrypted_content", "status"},
    "ResponseFunctionToolCall": {"async_", "caller", "namespace"},
    "InputTokensDetails": {"cache_write_tokens_details"},
    "ResponseInputText": {"prompt_cache_breakpoint"},
    "ResponseInputImage": {"file_id", "prompt_cache_breakpoint"},
    **{key: {"async_", "caller", "created_by", "name", "namespace", "phase"} for key in _ITEMS},
}
"""The fields of each type that the reference sends only where they apply."""

_Model = TypeVar("_Model", bound=BaseModel)


def anthropic_types() -> Any:
    """Return the types of Anthropic's SDK.

    Importing it takes a second of CPU time, which at module level every process of pytest-xdist would spend.
    """
    import anthropic.types

    return anthropic.types


@cache
def anthropic_events(*, beta: bool = False) -> TypeAdapter[Any]:
    """Return the type of the events in Anthropic's streams."""
    types = anthropic_types()
    return TypeAdapter(types.beta.BetaRawMessageStreamEvent if beta else types.RawMessageStreamEvent)


class CompletionChunkChoice(CompletionChoice):
    """The SDK has one type for completions and their chunks; in chunks the service itself sends null here."""

    finish_reason: Literal["stop", "length", "content_filter"] | None  # type: ignore[assignment]


class CompletionChunk(Completion):
    """A chunk of a plain completion."""

    choices: list[CompletionChunkChoice]  # type: ignore[assignment]


def checked(kind: type[_Model], document: str | bytes) -> _Model:
    """Return ``document`` as a ``kind``. Fails for a value of the wrong type and for a field that is unknown."""
    value = kind.model_validate_json(document, strict=True)
    check_known(value)
    return value


def complete(kind: type[_Model], document: str | bytes) -> _Model:
    """Return ``document`` as a ``kind``, as :func:`checked` does. Fails for an absent field that is not among
    :data:`OMITTED`, too: the SDK's types have a default for each field that may be null, but the reference sends them.
    """
    value = checked(kind, document)
    _check_complete(value, kind.__name__)
    return value


def _check_complete(value: object, path: str) -> None:
    if isinstance(value, BaseModel):
        kind = type(value)
        absent = kind.model_fields.keys() - value.model_fields_set - OMITTED.get(kind.__name__, set())
        assert not absent, f"{path} ({kind.__name__}) has no {sorted(absent)}"
        for name, inner in vars(value).items():
            _check_complete(inner, f"{path}.{name}")
    if isinstance(value, list):
        for index, inner in enumerate(value):
            _check_complete(inner, f"{path}[{index}]")


def rechecked(value: _Model) -> _Model:
    """Check what the SDK's client has returned, which it does not do itself; return it."""
    checked(type(value), value.model_dump_json(exclude_unset=True, by_alias=True, warnings=False))
    return value


def conversation(*messages: ChatRequestMessage) -> list[ChatRequestMessage]:
    """The only kind of list that Azure's SDK takes: one of messages of a single role has another type."""
    return list(messages)


def check_known(value: object) -> None:
    """Fail if there is a field in ``value`` that the SDK does not know."""
    if isinstance(value, BaseModel):
        assert (value.model_extra or {}).keys() <= ADDED, value.model_extra
        for inner in vars(value).values():
            check_known(inner)
    if isinstance(value, list):
        for inner in value:
            check_known(inner)
