"""What any engine refuses: sequences that do not fit, and fields that need logits where there are none."""

from shared.protocol.errors import ContextExcess, ProblemKind, context_exceeded, logits_refused, refuse
from shared.protocol.request import Sampling
from worker.engine.protocol import EngineSequence


def max_output_tokens(sequence: EngineSequence, *, vocabulary: int, context_length: int, cache_tokens: int) -> int:
    """Return the maximum output length in tokens. Raises :class:`RequestRefused` if the sequence does not fit.

    ``vocabulary`` is the number of token ids; the other two are in tokens.
    """
    prompt, length = len(sequence.prompt), len(sequence.prompt) + len(sequence.generated)
    if not prompt or min(sequence.prompt) < 0 or max(sequence.prompt) >= vocabulary:
        raise refuse(
            ProblemKind.INVALID, f"The prompt must have token ids from 0 to {vocabulary - 1}, and at least one."
        )
    if prompt >= context_length:
        raise context_exceeded(ContextExcess(prompt=prompt, limit=context_length))
    if length >= cache_tokens:
        raise refuse(
            ProblemKind.CACHE_EXHAUSTED,
            f"The request needs a KV cache for over {length} tokens; this worker's holds {cache_tokens}.",
        )
    return context_length - prompt


def check_prompt(tokens: int, longest: int, *, param: str = "messages", complete: bool = True) -> None:
    """Raise :class:`RequestRefused` for a prompt of more than ``longest`` tokens, 0 being no limit.

    ``complete`` is False if only ``tokens`` tokens of a longer prompt were counted.
    """
    if longest and tokens > longest:
        count = tokens if complete else f"more than {tokens}"
        message = (
            f"This model's maximum prompt length is {longest} tokens (the worker's MAX_PROMPT_LEN), however your "
            f"{param} resulted in {count} tokens. Please reduce the length of the {param}."
        )
        raise refuse(ProblemKind.CONTEXT_LENGTH, message, param=param)


def check_logits(sampling: Sampling, vocabulary_size: int, *, hooked: bool) -> None:
    """Raise :class:`RequestRefused` for fields that need logits if the model is not ``hooked``, and for unknown ids."""
    if not hooked and sampling.logits_param is not None:
        raise logits_refused(sampling.logits_param)
    biased = [token for token, _ in sampling.logit_bias]
    for field, tokens in (("logit_bias", biased), ("allowed_token_ids", sampling.allowed_token_ids)):
        for token in tokens:
            if not 0 <= token < vocabulary_size:
                message = f"Invalid '{field}': the model has no token {token}; ids go from 0 to {vocabulary_size - 1}."
                raise refuse(ProblemKind.INVALID, message, param=field)
