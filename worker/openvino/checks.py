"""What the OpenVINO engines refuse: sampling fields that their pipelines reject or would ignore."""

from shared.protocol.errors import ProblemKind, RequestRefused, logits_refused, refuse
from shared.protocol.request import LOGITS, Sampling
from worker.engine.protocol import EngineSequence
from worker.model.generation_config import OPEN_ABOVE, OPEN_BELOW, RANGES, in_range
from worker.openvino.options import Speculation

MAX_BEAMS = 64

MAX_ASSISTANT_TOKENS = 16
"""Maximum number of tokens that one sequence drafts in a step: it shares the step's budget with the others."""

_FIELDS: dict[Speculation, frozenset[str]] = {
    "none": frozenset(),
    "draft": frozenset({"num_assistant_tokens", "assistant_confidence_threshold"}),
    "eagle3": frozenset({"num_assistant_tokens"}),
    "lookup": frozenset({"num_assistant_tokens", "max_ngram_size"}),
}
_REASONS: dict[Speculation, str] = {
    "none": "this worker decodes without speculation",
    "draft": "this worker speculates with a draft model",
    "eagle3": "this worker speculates with an EAGLE-3 head",
    "lookup": "this worker speculates by prompt lookup",
}


def check_sampling(sequence: EngineSequence) -> None:
    """Raise :class:`RequestRefused` when a sampling field is outside the range that the pipeline supports."""
    for field, (least, most) in RANGES.items():
        value = getattr(sequence.sampling, field)
        if value is not None and not in_range(field, value):
            low = f"{'above' if field in OPEN_BELOW else 'from'} {least:g}"
            high = f"{'below' if field in OPEN_ABOVE else 'to'} {most:g}"
            raise _invalid(field, f"Invalid '{field}': the engine takes values {low} {high}, but got {value}.")
    _check_beams(sequence)
    if any(token < 0 for token in sequence.sampling.stop_token_ids):
        raise _invalid("stop_token_ids", "Invalid 'stop_token_ids': token ids are not negative.")


def check_images(sampling: Sampling) -> None:
    """Raise :class:`RequestRefused` for log probabilities of the prompt.

    A vision-language model's pipeline does not know the tokens of a prompt: it crashes where it has to score them.
    """
    if sampling.prompt_scoring is not None:
        param = sampling.prompt_scoring.param
        raise _invalid(param, f"'{param}' is not supported with this model: it reads images, and scores no prompts.")


def check_speculation(sequence: EngineSequence, speculation: Speculation) -> None:
    """Raise :class:`RequestRefused` for a field that this engine does not support, or an invalid value."""
    sampling = sequence.sampling
    for field in ("num_assistant_tokens", "assistant_confidence_threshold", "max_ngram_size"):
        value = getattr(sampling, field)
        if value is None:
            continue
        if field not in _FIELDS[speculation]:
            raise _invalid(field, f"'{field}' is not supported here: {_REASONS[speculation]}.")
        if value <= 0:
            raise _invalid(field, f"Invalid '{field}': expected a value above 0, but got {value}.")
    if (sampling.num_assistant_tokens or 0) > MAX_ASSISTANT_TOKENS:
        message = f"Invalid 'num_assistant_tokens': expected at most {MAX_ASSISTANT_TOKENS}."
        raise _invalid("num_assistant_tokens", message)
    if sampling.assistant_confidence_threshold and sampling.temperature and sampling.top_p != 0:
        message = "'assistant_confidence_threshold' needs 'temperature' 0; use 'num_assistant_tokens' with sampling."
        raise _invalid("assistant_confidence_threshold", message)
    if speculation in ("draft", "eagle3") and sampling.prompt_scoring is not None:
        param = sampling.prompt_scoring.param
        raise _invalid(param, f"'{param}' is not supported here: {_REASONS[speculation]}.")
    if speculation == "eagle3" and len(sequence.prompt) < 2:
        raise _invalid("prompt", f"A prompt of one token is not supported here: {_REASONS[speculation]}.")
    if speculation != "none" and sampling.beams > 1:
        raise _invalid("best_of", f"Beam search is not supported here: {_REASONS[speculation]}.")
    if speculation != "none" and any(len(word) > 1 for word in sequence.bad_word_tokens):
        # A step has a row for each draft token, but the hook does not see which tokens those are.
        raise _invalid("bad_words", f"Words of several tokens are not supported here: {_REASONS[speculation]}.")


def check_stateful(sampling: Sampling, *, hooked: bool) -> None:
    """Raise :class:`RequestRefused` for what the stateful engine does not do; some of it only if not ``hooked``."""
    if sampling.beams > 1:
        raise _invalid("best_of", "Beam search is not supported here: this worker runs the stateful engine.")
    if sampling.prompt_scoring is not None:
        param = sampling.prompt_scoring.param
        raise _invalid(param, f"'{param}' is not supported here: this worker runs the stateful engine.")
    if sampling.logprobs and not hooked:
        raise logits_refused("logprobs")


def _check_beams(sequence: EngineSequence) -> None:
    """Raise :class:`RequestRefused` for fields that the pipeline rejects or ignores in a beam search."""
    sampling = sequence.sampling
    if sampling.beams == 1:
        return
    if not 1 <= sampling.beams <= MAX_BEAMS:
        raise _invalid("best_of", f"Invalid 'best_of': expected 1 to {MAX_BEAMS} beams, but got {sampling.beams}.")
    if sequence.grammar is not None:
        raise _invalid("best_of", "Beam search can't be combined with structured output or forced tool calls.")
    if sampling.prompt_scoring is not None:
        raise _invalid(
            sampling.prompt_scoring.param,
            "Log probabilities of the prompt are not supported with beam search ('best_of' above 1).",
        )
    for field in ("ignore_eos", "min_tokens", *LOGITS):
        if getattr(sampling, field):
            raise _invalid(field, f"'{field}' is not supported with beam search ('best_of' above 1).")
    penalties = {
        "frequency_penalty": sampling.frequency_penalty,
        "presence_penalty": sampling.presence_penalty,
        "repetition_penalty": None if sampling.repetition_penalty == 1 else sampling.repetition_penalty,
    }
    for name, value in penalties.items():
        if value:
            raise _invalid(name, f"'{name}' is not supported with beam search ('best_of' above 1).")


def _invalid(param: str, message: str) -> RequestRefused:
    return refuse(ProblemKind.INVALID, message, param=param)
