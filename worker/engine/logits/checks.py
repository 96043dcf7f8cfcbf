"""Refuses sampling fields that need the model's logits, where there are none."""

from shared.protocol.errors import Problem, ProblemKind, logits_refused
from shared.protocol.request import Sampling
from worker.engine.interface import EngineRefusal


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
