"""Converts a sequence's sampling to the pipeline's generation config.

All values are validated here: the pipeline's own errors refer to its C++ sources, and it silently ignores some values
that it does not support.
"""

from typing import Any

import openvino_genai

from shared.protocol.errors import Problem, ProblemKind
from worker.engine.beams import check_beams
from worker.engine.interface import EngineRefusal, Sequence
from worker.engine.logits.rows import needs_rows
from worker.engine.structured_output import structured_output_config

_RANGES: tuple[tuple[str, float, float], ...] = (
    ("temperature", 0.0, 100.0),
    ("top_p", 0.0, 1.0),
    ("min_p", 0.0, 1.0),
    ("top_k", 0, 2**31 - 1),
    ("frequency_penalty", -2.0, 2.0),
    ("presence_penalty", -2.0, 2.0),
    ("repetition_penalty", 0.0, 100.0),
    ("min_tokens", 0, 2**31 - 1),
    ("max_tokens", 0, 2**63 - 1),
    ("seed", 0, 2**64 - 1),
)
"""Sampling fields with their minimum and maximum, both inclusive except as below."""

_OPEN_BELOW = {"repetition_penalty"}
_OPEN_ABOVE = {"min_p"}


def configure(
    sequence: Sequence, defaults: openvino_genai.GenerationConfig, *, done: int, max_new_tokens: int
) -> openvino_genai.GenerationConfig:
    """Apply the sampling of a sequence to ``defaults``, a fresh copy that is modified and returned.

    ``done`` is the number of generated tokens that are passed to the pipeline as part of the prompt; frequency and
    presence penalties do not count those. Stop strings are handled by :class:`~worker.engine.text.TextStream`: the
    pipeline emits the part of a stop string that shares a token with other text.
    """
    sampling, config = sequence.sampling, defaults
    config.max_new_tokens = max_new_tokens
    config.min_new_tokens = max(0, min((sampling.min_tokens or 0) - done, max_new_tokens))
    config.stop_token_ids = config.stop_token_ids | set(sampling.stop_token_ids)
    config.ignore_eos = sampling.ignore_eos
    config.logprobs = int(sampling.logprobs or needs_rows(sampling))
    if sampling.temperature is not None:
        config.do_sample = sampling.temperature > 0
        if config.do_sample:
            config.temperature = sampling.temperature
    if sampling.top_p == 0:
        # The pipeline requires a value above 0. 0 means greedy decoding.
        config.do_sample = False
    if config.do_sample:
        _set(config, top_p=sampling.top_p, top_k=sampling.top_k, min_p=sampling.min_p)
        if sampling.seed is not None:
            # A resumed sequence must not draw the same random numbers again.
            config.rng_seed = (sampling.seed + done) % 2**64
    _set(
        config,
        frequency_penalty=sampling.frequency_penalty,
        presence_penalty=sampling.presence_penalty,
        repetition_penalty=sampling.repetition_penalty,
    )
    if sampling.beams > 1:
        config.do_sample = False
        config.num_beams = sampling.beams
        config.num_return_sequences = sequence.alternatives
        # In a beam search, the pipeline requires the end token among any stop tokens. Generation finds them instead.
        config.stop_token_ids = set()
        _set(config, length_penalty=sampling.length_penalty)
    if sequence.constraint is not None:
        config.structured_output_config = structured_output_config(sequence.constraint)
    return config


def score_prompt(config: openvino_genai.GenerationConfig) -> bool:
    """Have the pipeline compute logits for each token of the prompt; return whether its new tokens can be used.

    The pipeline can do that only without a repetition penalty, and only if it also samples a token.
    """
    config.echo = True
    config.logprobs = 1
    config.max_new_tokens = max(1, config.max_new_tokens)
    if config.repetition_penalty == 1.0:
        return True
    config.repetition_penalty = 1.0
    config.min_new_tokens, config.max_new_tokens = 0, 1
    return False


def check(sequence: Sequence) -> None:
    """Raise :class:`EngineRefusal` when a sampling field is outside the range that the pipeline supports."""
    for field, least, most in _RANGES:
        value = getattr(sequence.sampling, field)
        if value is None:
            continue
        above = value > least or (value == least and field not in _OPEN_BELOW)
        below = value < most or (value == most and field not in _OPEN_ABOVE)
        if not (above and below):
            raise EngineRefusal(
                Problem(
                    kind=ProblemKind.INVALID,
                    message=f"Invalid '{field}': the engine takes values {'above' if field in _OPEN_BELOW else 'from'} "
                    f"{least:g} {'below' if field in _OPEN_ABOVE else 'to'} {most:g}, but got {value}.",
                    param=field,
                )
            )
    check_beams(sequence)
    if any(token < 0 for token in sequence.sampling.stop_token_ids):
        raise EngineRefusal(
            Problem(
                kind=ProblemKind.INVALID,
                message="Invalid 'stop_token_ids': token ids are not negative.",
                param="stop_token_ids",
            )
        )


def _set(config: openvino_genai.GenerationConfig, **values: Any) -> None:
    for name, value in values.items():
        if value is not None:
            setattr(config, name, value)
