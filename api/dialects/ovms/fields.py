"""The fields of OpenVINO Model Server's reference: those that are served, and those that it calls unsupported."""

from collections.abc import Mapping
from typing import Any

from api.dialects.extended import ExtendedChatRequest
from shared.errors import ProblemKind, refuse

SERVED = frozenset(
    {
        "model",
        "messages",
        "stop",
        "stream",
        "stream_options",
        "max_tokens",
        "max_completion_tokens",
        "ignore_eos",
        "include_stop_str_in_output",
        "logprobs",
        "tools",
        "tool_choice",
        "response_format",
        "chat_template_kwargs",
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

_NO_SUCH_SETTING = "The engine has no such setting."
_USE_TOOLS = "Use 'tools' and 'tool_choice'."
_NOT_HERE = "This interface does not have it; it may be served under /v1."

UNSUPPORTED: dict[str, str] = {
    "logit_bias": _NO_SUCH_SETTING,
    "top_logprobs": "Only the chosen token's log probability is known: use 'logprobs' alone.",
    "user": _NOT_HERE,
    "function_call": _USE_TOOLS,
    "functions": _USE_TOOLS,
    "use_beam_search": "Set 'best_of' to the width of the beam.",
    "early_stopping": _NO_SUCH_SETTING,
    "stop_token_ids": "Use 'stop'.",
    "min_tokens": "Use 'ignore_eos' with 'max_tokens'.",
    "prompt_logprobs": "Only the log probabilities of generated tokens are known.",
    "detokenize": "Answers are always text.",
    "spaces_between_special_tokens": _NO_SUCH_SETTING,
    "logits_processors": _NO_SUCH_SETTING,
    "truncate_prompt_tokens": "A prompt is served whole or not at all.",
}
"""The reference's lists of what it does not support, and why not or what to use instead."""


def check_fields(value: Mapping[str, Any]) -> None:
    """Refuse the first field in ``value`` that has a meaning elsewhere, but none in this interface.

    Null is the same as leaving a field out. Fields that nobody knows are left to validation. Raises
    :class:`shared.errors.RequestRefused`.
    """
    for field, given in value.items():
        known = field in UNSUPPORTED or field in ExtendedChatRequest.model_fields
        if known and field not in SERVED and given is not None:
            message = f"Unsupported parameter: '{field}'. {UNSUPPORTED.get(field, _NOT_HERE)}"
            raise refuse(ProblemKind.INVALID, message, param=field, code="unsupported_parameter")
