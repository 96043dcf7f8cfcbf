"""Parser of plain completion bodies."""

import msgspec

from api.dialects.base.body import decode_object
from api.dialects.base.sampling import sampling
from api.dialects.base.unsupported import check_supported, unsupported
from api.dialects.base.validation import validate
from api.dialects.openai.completions_schema import DEFAULT_MAX_TOKENS, CompletionRequest, prompts_of
from api.dialects.openai.extensions import ServedCompletionRequest, with_extensions
from api.dialects.openai.parse import DEFAULTS
from api.dialects.openai.rules import check_logit_bias, switched_off
from shared.protocol.errors import ProblemKind, refuse
from shared.protocol.request import ChatRequest, PromptScoring, ResponseForm, Sampling, formed


def parse_completion(body: bytes, model: str | None = None) -> ChatRequest:
    """Parse a plain completion body. ``model`` replaces the one in it.

    Raises :class:`RequestRefused` and no other exception.
    """
    value = decode_object(body)
    if model is not None:
        value["model"] = model
    if value.get("max_tokens") is None:
        value["max_tokens"] = DEFAULT_MAX_TOKENS
    request = validate(ServedCompletionRequest, value)
    plain = translate_completion(request)
    _check_best_of(request)
    return formed(plain, best_of=request.best_of or 1)


def translate_completion(request: ServedCompletionRequest) -> ChatRequest:
    """Return the internal form of a validated request, without ``best_of``.

    The model server's requests extend this one. Raises :class:`RequestRefused` for a broken rule, and for unsupported
    features.
    """
    _check(request)
    notes = check_supported(request)
    plain = ChatRequest(
        model=request.model,
        # By the reference, a missing prompt starts a new document.
        prompts=("",) if request.prompt is None else prompts_of(request.prompt),
        sampling=_sampling(request),
        defaults=DEFAULTS,
        n=request.n or 1,
        response=ResponseForm(
            echo=bool(request.echo),
            stream=bool(request.stream),
            include_usage=bool(request.stream_options and request.stream_options.include_usage),
            continuous_usage=bool(request.stream_options and request.stream_options.continuous_usage_stats),
            prompt_logprobs=request.prompt_logprobs,
            notes=notes,
        ),
    )
    return with_extensions(plain, request)


def _sampling(request: ServedCompletionRequest) -> Sampling:
    """Return the sampling parameters. ``echo`` with log probabilities scores the prompt like ``prompt_logprobs``."""
    found = sampling(request)
    scoring = found.prompt_scoring
    if not (request.echo and found.logprobs) or (scoring is not None and scoring.top >= found.top_logprobs):
        return found
    return msgspec.structs.replace(found, prompt_scoring=PromptScoring(top=found.top_logprobs, param="echo"))


def _check(request: CompletionRequest) -> None:
    """Check the rules across fields, and the bounds that are tighter than in the reference."""
    if request.stream_options is not None and not request.stream:
        raise switched_off("stream_options", "stream")
    if request.max_tokens == 0 and not request.echo:
        raise unsupported("max_tokens", "It must be at least 1, unless 'echo' is true.")
    token_ids = isinstance(request.prompt, list) and not isinstance(request.prompt[0], str)
    if request.echo and token_ids and request.logprobs is None:
        raise unsupported("echo", "With token ids, it is supported together with 'logprobs' only.")
    check_logit_bias(request.logit_bias)


def _check_best_of(request: CompletionRequest) -> None:
    n = request.n or 1
    if request.best_of is not None and request.best_of < n:
        message = (
            "You requested that the server return more choices than it will generate (HINT: you must set 'n' "
            f"(currently {n}) to be at most 'best_of' (currently {request.best_of}), or omit either parameter if you "
            "don't specifically want to use them.)"
        )
        raise refuse(ProblemKind.INVALID, message, param="best_of")
    if request.stream and (request.best_of or n) > n:
        message = "Invalid value for 'best_of': results can't be streamed when 'best_of' is greater than 'n'."
        raise refuse(ProblemKind.INVALID, message, param="best_of")
