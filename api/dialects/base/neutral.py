"""Fields of vLLM, llama.cpp and OpenVINO Model Server of which only the neutral value is served.

Clients of these servers send them with their defaults. At such a value nothing can go wrong; at another one, the client
would get something else than it asked for. Fields that change no answer, or only together with a refused one, are
ignored.
"""

from typing import Annotated, Any

from api.dialects.base.fields import Strict
from api.dialects.base.unsupported import CACHED_ALWAYS, Ignored, Refused

NOT_HERE = "The engine does not support it."
BEAMS = "Beam searches are served under /v3 ('best_of')."
IMAGES = "Images are prepared as the model needs them."
REASONING = "Reasoning is in a field of its own; clients can leave it out."

Anything = Annotated[Any, Ignored()]


def _off(*neutral: float | str, reason: str = NOT_HERE) -> Refused:
    return Refused(reason, neutral=neutral)


class NeutralFields(Strict):
    """Those of all requests. ``num_ctx`` and ``keep_alive`` are Ollama's: the operator decides on both."""

    adaptive_decay: Anything = None
    adaptive_target: Annotated[float | None, _off(-1.0)] = None
    backend_sampling: Annotated[bool | None, _off(False)] = None
    cache_prompt: Annotated[bool | None, _off(True, reason=CACHED_ALWAYS)] = None
    detokenize: Annotated[bool | None, _off(True, reason="Responses are always text.")] = None
    dry_allowed_length: Anything = None
    dry_base: Anything = None
    dry_multiplier: Annotated[float | None, _off(0.0)] = None
    dry_penalty_last_n: Anything = None
    dry_sequence_breakers: Anything = None
    dynatemp_exponent: Anything = None
    dynatemp_range: Annotated[float | None, _off(0.0)] = None
    early_stopping: Annotated[bool | str | None, _off(False)] = None
    id_slot: Annotated[int | None, _off(-1)] = None
    keep_alive: Annotated[float | str | None, Ignored()] = None
    length_penalty: Annotated[float | None, _off(0.0, 1.0, reason=BEAMS)] = None
    logits_processors: Annotated[list[Any] | None, Refused(NOT_HERE)] = None
    media_io_kwargs: Annotated[dict[str, Any] | None, Refused(IMAGES, neutral=({},))] = None
    min_keep: Annotated[int | None, _off(0)] = None
    mirostat: Annotated[int | None, _off(0)] = None
    mirostat_eta: Anything = None
    mirostat_tau: Anything = None
    mm_processor_kwargs: Annotated[dict[str, Any] | None, Refused(IMAGES, neutral=({},))] = None
    n_cache_reuse: Anything = None
    n_discard: Annotated[int | None, _off(0)] = None
    n_indent: Annotated[int | None, _off(0)] = None
    n_keep: Annotated[int | None, _off(0, -1)] = None
    num_ctx: Annotated[int | None, Ignored()] = None
    pad_to_max_length: Annotated[bool | None, _off(False)] = None
    post_sampling_probs: Annotated[bool | None, _off(False)] = None
    priority: Annotated[int | None, _off(0, reason="Use 'service_tier'.")] = None
    repeat_last_n: Annotated[int | None, _off(64, -1)] = None
    request_id: Anything = None
    return_mm_kwargs: Anything = None
    return_progress: Anything = None
    return_prompt_text: Annotated[bool | None, _off(False)] = None
    return_token_offsets: Anything = None
    return_tokens: Annotated[bool | None, _off(False, reason="Use 'return_token_ids'.")] = None
    return_tokens_as_token_ids: Annotated[bool | None, _off(False, reason="Use 'return_token_ids'.")] = None
    routed_experts_prompt_start: Anything = None
    session_id: Anything = None
    spaces_between_special_tokens: Annotated[bool | None, _off(True)] = None
    sse_ping_interval: Anything = None
    stream_interval: Anything = None
    t_max_predict_ms: Annotated[int | None, _off(0, -1)] = None
    timings_per_token: Anything = None
    top_n_sigma: Annotated[float | None, _off(-1.0)] = None
    truncate_prompt_tokens: Annotated[int | None, _off(-1, reason="Prompts are never truncated.")] = None
    truncation_side: Anything = None
    typical_p: Annotated[float | None, _off(1.0)] = None
    use_beam_search: Annotated[bool | None, _off(False, reason=BEAMS)] = None
    verbose: Anything = None
    vllm_xargs: Annotated[dict[str, Any] | None, Refused(NOT_HERE, neutral=({},))] = None
    watermarking: Annotated[bool | None, _off(False)] = None
    xtc_probability: Annotated[float | None, _off(0.0)] = None
    xtc_threshold: Anything = None


class _TextFields(NeutralFields):
    grammar: Annotated[str | None, _off("", reason="Use 'structured_outputs'.")] = None
    n_cmpl: Annotated[int | None, _off(1, reason="Use 'n'.")] = None
    n_predict: Annotated[int | None, _off(-1, reason="Use 'max_tokens'.")] = None
    n_probs: Annotated[int | None, _off(0, reason="Use 'logprobs'.")] = None


class NeutralChatFields(_TextFields):
    """Those of chats."""

    add_special_tokens: Annotated[bool | None, _off(False, reason="The chat template decides on it.")] = None
    best_of: Annotated[int | None, _off(1, reason="Use 'n'.")] = None
    chat_template: Annotated[str | None, Refused("The model's operator sets the chat template.")] = None
    documents: Annotated[list[Any] | None, Refused("Put documents into messages.")] = None
    echo: Annotated[bool | None, _off(False, reason="Completions can repeat their prompt.")] = None
    include_reasoning: Annotated[bool | None, _off(True, reason=REASONING)] = None
    parse_tool_calls: Annotated[bool | None, _off(True, reason="Use 'skip_special_tokens'.")] = None
    reasoning_control: Annotated[bool | None, _off(False)] = None
    reasoning_format: Annotated[str | None, _off("auto", "deepseek", reason=REASONING)] = None
    thinking_forced_open: Annotated[bool | None, _off(False)] = None


class NeutralCompletionFields(_TextFields):
    """Those of plain completions."""

    add_special_tokens: Annotated[bool | None, _off(True)] = None
