"""Choosing among more texts than were asked for: ``best_of``, and what a beam search brings."""

import msgspec

from api.dialects.interface import Choice
from shared.protocol.errors import ProblemKind, refuse
from shared.protocol.request import ChatRequest


def is_selected(request: ChatRequest) -> bool:
    """Whether the choices are known only when everything is generated."""
    return request.best_of > request.n or request.sampling.beams > 1


def jobs_per_prompt(request: ChatRequest) -> int:
    """How many jobs each prompt of ``request`` needs; a beam search is one."""
    return 1 if request.sampling.beams > 1 else max(request.n, request.best_of)


def check_size(request: ChatRequest, most: int) -> None:
    """Raise :class:`RequestRefused` when ``request`` needs more than ``most`` texts generated."""
    texts = max(1, len(request.prompts)) * max(request.n, request.best_of, request.sampling.beams)
    if texts > most:
        raise refuse(
            ProblemKind.INVALID,
            f"This request asks for {texts} texts (prompts times choices), but the server allows at most {most}. "
            "Please send several requests.",
            param="n" if len(request.prompts) < 2 else "prompt",
        )


def needs_logprobs(request: ChatRequest) -> bool:
    """Whether the workers must tell log probabilities: for the client, or to choose by."""
    return request.sampling.logprobs or request.best_of > request.n


def select(request: ChatRequest, generated: list[Choice]) -> list[Choice]:
    """Return the ``n`` likeliest texts of each prompt, likeliest first, with their places as index.

    ``generated`` is in order of the jobs. Likelihood is the mean log probability of the tokens, as the reference
    of OpenAI's completions has it for ``best_of``.
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
