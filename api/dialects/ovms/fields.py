"""Supported and unsupported request fields of OpenVINO Model Server's reference."""

from collections.abc import Collection, Mapping
from typing import Any

from api.dialects.openai.completions_schema import CompletionRequest
from api.dialects.openai.extended import ExtendedChatRequest
from shared.protocol.errors import ProblemKind, RequestRefused, refuse

_COMMON = frozenset(
    {
        "model",
        "stop",
        "stream",
        "stream_options",
        "max_tokens",
        "ignore_eos",
        "include_stop_str_in_output",
        "logit_bias",
        "logprobs",
        "skip_special_tokens",
        "n",
        "best_of",
        "length_penalty",
        "temperature",
        "top_p",
        "min_p",
        "top_k",
        "repetition_penalty",
        "frequency_penalty",
        "presence_penalty",
        "seed",
        "num_assistant_tokens",
        "assistant_confidence_threshold",
        "max_ngram_size",
    }
)

CHAT = _COMMON | {
    "messages",
    "top_logprobs",
    "max_completion_tokens",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "chat_template_kwargs",
}
"""The supported fields of chats: the reference's, and ``parallel_tool_calls``."""

COMPLETION = _COMMON | {"prompt", "echo"}
"""The supported fields of plain completions."""

_NO_SUCH_SETTING = "The engine does not support it."
_USE_TOOLS = "Use 'tools' and 'tool_choice'."
_NOT_HERE = "This interface does not support it; /v1 may."

UNSUPPORTED: dict[str, str] = {
    "user": _NOT_HERE,
    "function_call": _USE_TOOLS,
    "functions": _USE_TOOLS,
    "use_beam_search": "Set 'best_of' to the beam width.",
    "early_stopping": _NO_SUCH_SETTING,
    "stop_token_ids": "Use 'stop'.",
    "min_tokens": "Use 'ignore_eos' with 'max_tokens'.",
    "prompt_logprobs": "Only log probabilities of generated tokens are available.",
    "detokenize": "Responses are always text.",
    "spaces_between_special_tokens": _NO_SUCH_SETTING,
    "logits_processors": _NO_SUCH_SETTING,
    "suffix": "The engine can only continue a prompt.",
    "truncate_prompt_tokens": "Prompts are never truncated.",
}
"""Fields that the reference lists as unsupported, with the reason or an alternative."""


_KNOWN = frozenset(ExtendedChatRequest.model_fields) | frozenset(CompletionRequest.model_fields) | UNSUPPORTED.keys()


def served_fields(value: Mapping[str, Any], served: Collection[str]) -> dict[str, Any]:
    """Return ``value`` without the fields that other interfaces define but this one does not.

    Such fields are dropped if they are null. Raises :class:`RequestRefused` for the first that is not null. Unknown
    fields are kept, so that validation refuses them.
    """
    taken: dict[str, Any] = {}
    for field, given in value.items():
        if field in served or field not in _KNOWN:
            taken[field] = given
        elif given is not None:
            raise not_served(field)
    return taken


def not_served(field: str) -> RequestRefused:
    message = f"Unsupported parameter: '{field}'. {UNSUPPORTED.get(field, _NOT_HERE)}"
    return refuse(ProblemKind.INVALID, message, param=field, code="unsupported_parameter")
