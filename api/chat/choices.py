"""The choices of a request: how many texts it generates, how large they may be, and which of them are returned."""

import msgspec
from msgspec.structs import replace

from api.dialects.base.interface import Choice
from api.fairness import TenantBytes
from shared.protocol.cost import LARGEST, prompt_cost
from shared.protocol.errors import ProblemKind, RequestRefused, refuse
from shared.protocol.request import ChatRequest, Embed, Rerank


def is_selected(request: ChatRequest) -> bool:
    """Return whether the choices are known only after all texts are generated."""
    return request.response.best_of > request.n or request.sampling.beams > 1


def jobs_per_prompt(request: ChatRequest) -> int:
    """Return the number of jobs per prompt; a beam search is one job."""
    return 1 if request.sampling.beams > 1 else max(request.n, request.response.best_of)


_MAX_TEXTS, _MAX_TOKENS = 32, 8192
"""Maximum numbers of texts to embed or documents to score in a job, and of their tokens by estimate unless it is one
text. So tenants take turns, and a worker that is lost loses little."""


def parts_of(request: ChatRequest) -> list[ChatRequest]:
    """Return the request of each job of a choice: a prompt, or some texts to embed or documents to score."""
    if not isinstance(request.work, Embed):
        return [replace(request, prompts=(prompt,)) for prompt in request.prompts] or [request]
    parts: list[ChatRequest] = []
    first = size = 0
    for index in range(len(request.prompts)):
        cost = prompt_cost(_texts(request, request.work, index, index + 1))
        if index - first == _MAX_TEXTS or (index > first and size + cost > _MAX_TOKENS):
            parts.append(_texts(request, request.work, first, index))
            first, size = index, 0
        size += cost
    return [*parts, _texts(request, request.work, first, len(request.prompts))]


def _texts(request: ChatRequest, work: Embed, first: int, end: int) -> ChatRequest:
    work = replace(work, first=first)
    if isinstance(work, Rerank) and len(work.queries) > 1:
        work = replace(work, queries=work.queries[first:end])
    return replace(request, prompts=request.prompts[first:end], work=work)


def check_size(request: ChatRequest, most: int) -> None:
    """Raise :class:`RequestRefused` when ``request`` generates more than ``most`` texts."""
    texts = max(1, len(request.prompts)) * max(request.n, request.response.best_of, request.sampling.beams)
    if texts > most:
        raise refuse(
            ProblemKind.INVALID,
            f"This request asks for {texts} texts (prompts times choices), but the server allows at most {most}. "
            "Please send several requests.",
            param="n" if len(request.prompts) < 2 else "prompt",
        )


def needs_logprobs(request: ChatRequest) -> bool:
    """Return whether workers must report log probabilities, for the client or to rank ``best_of``."""
    return request.sampling.logprobs or request.response.best_of > request.n


def select(request: ChatRequest, generated: list[Choice]) -> list[Choice]:
    """Return the ``n`` likeliest texts of each prompt, likeliest first and indexed in that order.

    ``generated`` is in job order. Likelihood is the mean log probability per token, as OpenAI's reference defines
    ``best_of``.
    """
    if request.response.best_of <= request.n:
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


MAX_TEXTS = 128
"""Maximum number of texts to generate for one request, as in OpenAI's API."""
MAX_RESPONSE_BYTES = 32 * 2**20
"""Maximum estimated size of a response."""

TEXT_BYTES = 8
"""Typical size of a token's text, or of its id."""
LOGPROB_BYTES = 80
"""Typical size of a token with its text, its bytes and its log probability."""

_ALL, _TENANT = 4, 2
"""Maximum size of the log probabilities of running responses, of all tenants and of one, in multiples of the maximum
size of a response."""


def check_response_size(request: ChatRequest) -> None:
    """Raise :class:`RequestRefused` if ``request`` asks for too many texts, or for a response that is too large."""
    if isinstance(request.work, Embed):
        return  # The dialects bound the number of texts.
    check_size(request, MAX_TEXTS)
    limit, wanted = MAX_RESPONSE_BYTES, request.sampling.max_tokens
    tokens = min(LARGEST, max(1, request.sampling.min_tokens or 0) if wanted is None else wanted)
    if tokens > most_tokens(request, limit):
        size = _prompt_bytes(request) + tokens * _step_bytes(request)
        raise _too_large(request, size, limit)


def most_tokens(request: ChatRequest, limit: int) -> int:
    """Return the number of tokens of each text with which the response has ``limit`` bytes; negative if its prompt
    alone is too large."""
    return (limit - _prompt_bytes(request)) // _step_bytes(request)


def _too_large(request: ChatRequest, size: int, limit: int) -> RequestRefused:
    """Return the refusal of a request whose response may have ``size`` bytes."""
    scoring = request.sampling.prompt_scoring
    if scoring is not None and _prompt_bytes(request) > limit:
        remedy, param = (
            "Ask for fewer log probabilities of the prompt, send a shorter prompt, or lower 'n'",
            scoring.param,
        )
    elif needs_logprobs(request):
        remedy, param = "Lower the maximum of tokens, the number of log probabilities or 'n'", "logprobs"
    else:
        remedy, param = "Lower the maximum of tokens or 'n'", "max_tokens"
    return refuse(
        ProblemKind.INVALID,
        f"The response to this request may have {size} bytes (prompts times choices, times tokens, times log "
        f"probabilities of each), but the server allows at most {limit}. {remedy}, or send several requests.",
        param=param,
    )


def _step_bytes(request: ChatRequest) -> int:
    """Return the bytes that one more token of each text adds to the response."""
    size = TEXT_BYTES * (2 if request.return_token_ids else 1)
    if needs_logprobs(request):
        size += LOGPROB_BYTES * (1 + request.sampling.top_logprobs)
    return size * max(1, len(request.prompts)) * max(jobs_per_prompt(request), request.sampling.beams)


def _prompt_bytes(request: ChatRequest) -> int:
    """Return the bytes that the log probabilities of the prompts add to the response."""
    scoring = request.sampling.prompt_scoring
    if scoring is None:
        return 0
    return prompt_cost(request) * jobs_per_prompt(request) * LOGPROB_BYTES * (1 + scoring.top)


def response_room(limit: int) -> TenantBytes:
    """Return what bounds the memory of the log probabilities of running responses, of at most ``limit`` bytes each."""
    return TenantBytes(
        _ALL * limit,
        share=_TENANT * limit,
        full="The responses that are being generated have too many log probabilities together. Please try again "
        "later, or ask for fewer of them at a time.",
    )
