"""Maximum output length of a sequence."""

from shared.protocol.errors import ContextExcess, Problem, ProblemKind, context_exceeded
from worker.engine.interface import EngineRefusal, Sequence


def max_output_tokens(sequence: Sequence, *, vocabulary: int, context_length: int, cache_tokens: int) -> int:
    """Return the maximum output length in tokens. Raises :class:`EngineRefusal` if the sequence does not fit.

    ``vocabulary`` is the number of token ids; the other two are in tokens.
    """
    prompt, length = len(sequence.prompt), len(sequence.prompt) + len(sequence.generated)
    # The pipeline does not validate token ids.
    if not prompt or min(sequence.prompt) < 0 or max(sequence.prompt) >= vocabulary:
        raise _refusal(
            ProblemKind.INVALID, f"The prompt must have token ids from 0 to {vocabulary - 1}, and at least one."
        )
    if prompt >= context_length:
        raise context_full(sequence, context_length)
    if length >= cache_tokens:
        raise _refusal(
            ProblemKind.CACHE_EXHAUSTED,
            f"The request needs a KV cache for over {length} tokens; this worker's holds {cache_tokens}.",
        )
    return context_length - prompt


def context_full(sequence: Sequence, context_length: int) -> EngineRefusal:
    """Return the refusal of a sequence whose prompt fills the context of ``context_length`` tokens."""
    message = (
        f"The prompt has {len(sequence.prompt)} tokens, which leaves no room for an answer: the context length is "
        f"{context_length} tokens."
    )
    excess = ContextExcess(
        prompt=len(sequence.prompt), completion=sequence.sampling.max_tokens or 1, limit=context_length
    )
    return EngineRefusal(context_exceeded(message, excess))


def _refusal(kind: ProblemKind, message: str) -> EngineRefusal:
    return EngineRefusal(Problem(kind=kind, message=message))
