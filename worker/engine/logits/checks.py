"""Refuses sampling fields that need the model's logits, where there are none."""

from shared.protocol.errors import Problem, ProblemKind
from shared.protocol.request import Sampling
from worker.engine.interface import EngineRefusal


def check_logits(sampling: Sampling, vocabulary_size: int, *, tapped: bool) -> None:
    """Raise :class:`EngineRefusal` for fields that need logits if the model is not ``tapped``, and for unknown ids."""
    if not tapped:
        if sampling.prompt_scoring is not None:
            raise _no_logits(sampling.prompt_scoring.param, "log probabilities of the prompt are")
        for field in ("top_logprobs", "logit_bias", "allowed_token_ids", "bad_words"):
            if getattr(sampling, field):
                raise _no_logits(field, f"'{field}' is")
    biased = [token for token, _ in sampling.logit_bias]
    for field, tokens in (("logit_bias", biased), ("allowed_token_ids", sampling.allowed_token_ids)):
        for token in tokens:
            if not 0 <= token < vocabulary_size:
                message = f"Invalid '{field}': the model has no token {token}; ids go from 0 to {vocabulary_size - 1}."
                raise EngineRefusal(Problem(kind=ProblemKind.INVALID, message=message, param=field))


def _no_logits(param: str, what: str) -> EngineRefusal:
    message = f"Unsupported parameter: {what} not supported with this model. Its worker has no access to logits."
    return EngineRefusal(Problem(kind=ProblemKind.INVALID, message=message, param=param, code="unsupported_parameter"))
