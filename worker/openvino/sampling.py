"""Converts a sequence's sampling to the pipeline's generation config, and ranks the texts of a beam search.

All values have been validated (:mod:`worker.openvino.checks`): the pipeline's own errors refer to its C++ sources, and
it silently ignores some values. The defaults of speculative decoding, with a draft model or by
prompt lookup, follow OpenVINO Model Server's documentation: 5 assistant tokens, n-grams of up to 3 tokens.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any

import openvino_genai
from openvino_genai.py_openvino_genai import GenerationOutput

from shared.protocol.events import Alternative, Delta, FinishReason
from shared.protocol.request import Sampling
from worker.engine.generation import Generation
from worker.engine.protocol import Ending, EngineSequence, Output, StepOutput
from worker.openvino.grammar_compiler import structured_output_config
from worker.openvino.options import OpenVINOOptions, Speculation


def configure(
    sequence: EngineSequence,
    end_tokens: Collection[int],
    *,
    done: int,
    max_new_tokens: int,
    adjusts_logits: bool = False,
) -> openvino_genai.GenerationConfig:
    """Return the config for the sampling of a sequence, which ends with one of ``end_tokens``.

    The sampling is complete: a field that is not set has no effect, whatever the model's own config says.
    ``done`` is the number of generated tokens that are passed to the pipeline as part of the prompt. With
    ``adjusts_logits``, the logits hook applies the penalties; the pipeline's own frequency and presence penalties do
    not count the ``done`` tokens, and raise logits below 0. Stop strings are handled by
    :class:`~worker.engine.text.TextStream`: the pipeline emits the part of one that shares a token with other text.
    """
    sampling, config = sequence.sampling, openvino_genai.GenerationConfig()
    config.max_new_tokens = max_new_tokens
    config.min_new_tokens = max(0, min((sampling.min_tokens or 0) - done, max_new_tokens))
    config.stop_token_ids = {*end_tokens, *sampling.stop_token_ids}
    config.ignore_eos = sampling.ignore_eos
    config.logprobs = int(sampling.logprobs or sampling.rows_param is not None)
    # The pipeline requires a top_p above 0. 0 means greedy decoding.
    config.do_sample = bool(sampling.temperature) and sampling.top_p != 0
    if config.do_sample:
        config.temperature = sampling.temperature
        config.top_p = _or(sampling.top_p, 1.0)
        config.top_k = _or(sampling.top_k, 0)
        config.min_p = _or(sampling.min_p, 0.0)
        if sampling.seed is not None:
            # A resumed sequence must not draw the same random numbers again.
            config.rng_seed = (sampling.seed + done) % 2**64
    own = Sampling() if adjusts_logits else sampling
    config.frequency_penalty = _or(own.frequency_penalty, 0.0)
    config.presence_penalty = _or(own.presence_penalty, 0.0)
    config.repetition_penalty = _or(own.repetition_penalty, 1.0)
    if sampling.beams > 1:
        config.do_sample = False
        config.num_beams = sampling.beams
        config.num_return_sequences = sequence.alternatives
        # In a beam search, the pipeline requires the end token among any stop tokens. Generation finds them instead.
        config.stop_token_ids = set()
        config.length_penalty = _or(sampling.length_penalty, 1.0)
    if sequence.grammar is not None:
        config.structured_output_config = structured_output_config(sequence.grammar)
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


def _or(value: float | None, neutral: float) -> float:
    """Return ``value``, or the value without an effect."""
    return neutral if value is None else value


ASSISTANT_TOKENS = 5
NGRAM_SIZE = 3
ROWS = 8
"""Rows of a step up to which requests that don't say how many tokens to draft share them, at least one each."""


def speculation_properties(options: OpenVINOOptions) -> dict[str, Any]:
    """Return the pipeline properties for speculation. Raises OpenVINO's error if the draft model can't be read."""
    match options.speculation:
        case "draft" | "eagle3":
            return {"draft_model": openvino_genai.draft_model(options.draft_model, options.device)}
        case "lookup":
            return {"prompt_lookup": True}
        case _:
            return {}


def apply_speculation(
    config: openvino_genai.GenerationConfig, sampling: Sampling, speculation: Speculation, others: int = 0
) -> int:
    """Set the speculation fields of a request's generation config; return how many tokens each step drafts.

    ``others`` is the number of running sequences. 0: there is no speculation, or the draft model decides.
    """
    if speculation == "none":
        return 0
    threshold = sampling.assistant_confidence_threshold
    if threshold is not None:
        config.assistant_confidence_threshold = threshold
        return 0
    own = sampling.num_assistant_tokens or max(1, min(ASSISTANT_TOKENS, ROWS // (others + 1) - 1))
    config.num_assistant_tokens = own
    # With a draft model, it has another effect: sampled tokens are compared with the drafted ones. Without it, OpenVINO
    # GenAI 2026.4 weighs their probabilities, and goes wrong after a rejection (its issue 4190).
    config.max_ngram_size = sampling.max_ngram_size or NGRAM_SIZE
    return own


_LENGTH = openvino_genai.GenerationFinishReason.LENGTH


def rank(
    generation: Generation,
    beams: Iterable[GenerationOutput],
    make: Callable[[EngineSequence], Generation],
) -> StepOutput:
    """Return the output of a beam search: the best texts of ``beams``, best first.

    Scores come from the pipeline and include the length penalty; higher is better.
    """
    sequence = generation.sequence
    best = sorted(beams, key=lambda beam: float(beam.score), reverse=True)[: sequence.alternatives]
    alternatives = []
    for beam in best:
        cut = beam.finish_reason == _LENGTH
        output = make(sequence).append(beam.generated_ids, beam.generated_log_probs, "length" if cut else "stop")
        delta = output.delta or Delta(0, (), "")
        reason: FinishReason = "length" if output.reason == "length" else "stop"
        alternatives.append(Alternative(delta.tokens, delta.text, reason, beam.score, delta.logprobs, delta.pieces))
    return Output(sequence.number, 0, None, "stop", Ending(tuple(alternatives)), generation.cached or 0)
