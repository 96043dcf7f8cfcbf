"""What an engine refuses of a sequence: what does not fit the context or the cache, and fields that need logits."""

from shared.protocol.errors import ContextExcess, Problem, ProblemKind, context_exceeded, logits_refused
from shared.protocol.request import Sampling
from worker.engine.protocol import EngineRefusal, Sequence


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


def check_logits(sampling: Sampling, vocabulary_size: int, *, tapped: bool) -> None:
    """Raise :class:`EngineRefusal` for fields that need logits if the model is not ``tapped``, and for unknown ids."""
    if not tapped and sampling.logits_param is not None:
        raise EngineRefusal(logits_refused(sampling.logits_param).problem)
    biased = [token for token, _ in sampling.logit_bias]
    for field, tokens in (("logit_bias", biased), ("allowed_token_ids", sampling.allowed_token_ids)):
        for token in tokens:
            if not 0 <= token < vocabulary_size:
                message = f"Invalid '{field}': the model has no token {token}; ids go from 0 to {vocabulary_size - 1}."
                raise EngineRefusal(Problem(kind=ProblemKind.INVALID, message=message, param=field))
