"""Beam search: ranks the finished beams, which the pipeline returns unsorted at the end."""

from collections.abc import Callable, Iterable

import openvino_genai
from openvino_genai.py_openvino_genai import GenerationOutput

from shared.protocol.errors import Problem, ProblemKind
from shared.protocol.events import Alternative, Delta, FinishReason
from worker.engine.generation import Generation
from worker.engine.interface import Ending, EngineRefusal, Output, Sequence, StepOutput

MAX_BEAMS = 64


_LENGTH = openvino_genai.GenerationFinishReason.LENGTH


def rank(
    generation: Generation,
    beams: Iterable[GenerationOutput],
    make: Callable[[Sequence], Generation],
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


def check_beams(sequence: Sequence) -> None:
    """Raise :class:`EngineRefusal` for fields that the pipeline rejects or ignores in a beam search."""
    sampling = sequence.sampling
    if sampling.beams == 1:
        return
    if not 1 <= sampling.beams <= MAX_BEAMS:
        raise _refusal("best_of", f"Invalid 'best_of': expected 1 to {MAX_BEAMS} beams, but got {sampling.beams}.")
    if sequence.constraint is not None:
        raise _refusal("best_of", "Beam search can't be combined with structured output or forced tool calls.")
    if sampling.prompt_scoring is not None:
        raise _refusal(
            sampling.prompt_scoring.param,
            "Log probabilities of the prompt are not supported with beam search ('best_of' above 1).",
        )
    for field in ("top_logprobs", "logit_bias", "allowed_token_ids", "bad_words"):
        if getattr(sampling, field):
            raise _refusal(field, f"'{field}' is not supported with beam search ('best_of' above 1).")
    penalties = {
        "frequency_penalty": sampling.frequency_penalty,
        "presence_penalty": sampling.presence_penalty,
        "repetition_penalty": None if sampling.repetition_penalty == 1 else sampling.repetition_penalty,
    }
    for name, value in penalties.items():
        if value:
            raise _refusal(name, f"'{name}' is not supported with beam search ('best_of' above 1).")


def _refusal(param: str, message: str) -> EngineRefusal:
    return EngineRefusal(Problem(kind=ProblemKind.INVALID, message=message, param=param))
