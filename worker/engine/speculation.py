"""Speculative decoding, with a draft model or by prompt lookup.

Defaults follow OpenVINO Model Server's documentation: 5 assistant tokens, n-grams of up to 3 tokens.
"""

from typing import Any, Literal

import openvino_genai

from shared.protocol.errors import Problem, ProblemKind
from shared.protocol.request import Sampling
from worker.engine.interface import EngineRefusal
from worker.engine.options import EngineOptions

Speculation = Literal["none", "draft", "lookup"]

ASSISTANT_TOKENS = 5
NGRAM_SIZE = 3

_FIELDS: dict[Speculation, frozenset[str]] = {
    "none": frozenset(),
    "draft": frozenset({"num_assistant_tokens", "assistant_confidence_threshold"}),
    "lookup": frozenset({"num_assistant_tokens", "max_ngram_size"}),
}
_REASONS: dict[Speculation, str] = {
    "none": "this worker decodes without speculation",
    "draft": "this worker speculates with a draft model",
    "lookup": "this worker speculates by prompt lookup",
}


def speculation_of(options: EngineOptions) -> Speculation:
    """Return the kind of speculation that ``options`` select."""
    if options.draft_model:
        return "draft"
    return "lookup" if options.prompt_lookup else "none"


def properties(options: EngineOptions) -> dict[str, Any]:
    """Return the pipeline properties for speculation. Raises OpenVINO's error if the draft model can't be read."""
    match speculation_of(options):
        case "draft":
            return {"draft_model": openvino_genai.draft_model(options.draft_model, options.device)}
        case "lookup":
            return {"prompt_lookup": True}
        case _:
            return {}


def apply(config: openvino_genai.GenerationConfig, sampling: Sampling, speculation: Speculation) -> None:
    """Set the speculation fields of a request's generation config."""
    if speculation == "none":
        return
    threshold = sampling.assistant_confidence_threshold
    if threshold is not None:
        config.assistant_confidence_threshold = threshold
        return
    config.num_assistant_tokens = sampling.num_assistant_tokens or ASSISTANT_TOKENS
    if speculation == "lookup":
        config.max_ngram_size = sampling.max_ngram_size or NGRAM_SIZE


def check_speculation(sampling: Sampling, speculation: Speculation) -> None:
    """Raise :class:`EngineRefusal` for a field that this engine does not support, or an invalid value."""
    for field in ("num_assistant_tokens", "assistant_confidence_threshold", "max_ngram_size"):
        value = getattr(sampling, field)
        if value is None:
            continue
        if field not in _FIELDS[speculation]:
            raise _refusal(field, f"'{field}' is not supported here: {_REASONS[speculation]}.")
        if value <= 0:
            raise _refusal(field, f"Invalid '{field}': expected a value above 0, but got {value}.")
    if speculation != "none" and sampling.beams > 1:
        raise _refusal("best_of", f"Beam search is not supported here: {_REASONS[speculation]}.")


def _refusal(param: str, message: str) -> EngineRefusal:
    return EngineRefusal(Problem(kind=ProblemKind.INVALID, message=message, param=param))
