"""Selection of choices for ``best_of`` and beam search, which generate more texts than they return."""

import msgspec

from api.dialects.base.interface import Choice
from shared.protocol.errors import ProblemKind, refuse
from shared.protocol.request import ChatRequest


def is_selected(request: ChatRequest) -> bool:
    """Return whether the choices are known only after all texts are generated."""
    return request.best_of > request.n or request.sampling.beams > 1


def jobs_per_prompt(request: ChatRequest) -> int:
    """Return the number of jobs per prompt; a beam search is one job."""
    return 1 if request.sampling.beams > 1 else max(request.n, request.best_of)


def check_size(request: ChatRequest, most: int) -> None:
    """Raise :class:`RequestRefused` when ``request`` generates more than ``most`` texts."""
    texts = max(1, len(request.prompts)) * max(request.n, request.best_of, request.sampling.beams)
    if texts > most:
        raise refuse(
            ProblemKind.INVALID,
            f"This request asks for {texts} texts (prompts times choices), but the server allows at most {most}. "
            "Please send several requests.",
            param="n" if len(request.prompts) < 2 else "prompt",
        )


def needs_logprobs(request: ChatRequest) -> bool:
    """Return whether workers must report log probabilities, for the client or to rank ``best_of``."""
    return request.sampling.logprobs or request.best_of > request.n


def select(request: ChatRequest, generated: list[Choice]) -> list[Choice]:
    """Return the ``n`` likeliest texts of each prompt, likeliest first and indexed in that order.

    ``generated`` is in job order. Likelihood is the mean log probability per token, as OpenAI's reference defines
    ``best_of``.
    """
    if request.best_of <= request.n:
        return generated
    per_prompt = jobs_per_prompt(request)
    chosen: list[Choice] = []
    for start in range(0, len(generated), per_prompt):
        ranked = sorted(generated[start : start + per_prompt], key=_likelihood, reverse=True)
        chosen += ranked[: request.n]
    return [
        msgspec.structs.replace(choice, index=index, logprobs=choice.logprobs if request.sampling.logprobs else None)
        for index, choice in enumerate(chosen)
    ]


def _likelihood(choice: Choice) -> float:
    if not choice.logprobs:
        return float("-inf")
    return sum(token.logprob for token in choice.logprobs) / len(choice.logprobs)
