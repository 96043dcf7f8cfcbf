"""Error bodies of Anthropic's API."""

import re
from dataclasses import dataclass

import msgspec

from api.dialects.base.interface import ErrorReply
from api.dialects.base.retries import retry_headers
from shared.protocol.errors import Problem, ProblemKind


@dataclass(frozen=True, slots=True)
class _Form:
    """Encoding of a kind of problem. ``retry`` is False if the SDKs would retry the request but should not."""

    status: int
    type: str
    retry: bool = True


UNTHREADED = "thread_unsupported_request"
"""Code of a refused ``thread``. The SDK's tool runner, which sends it by default, then continues without one."""

_INVALID = _Form(400, "invalid_request_error")
_OVERLOADED = _Form(529, "overloaded_error")
_INTERNAL = _Form(500, "api_error")
_FORMS: dict[ProblemKind, _Form] = {
    ProblemKind.INVALID: _INVALID,
    ProblemKind.MODALITY: _INVALID,
    ProblemKind.CONTEXT_LENGTH: _INVALID,
    ProblemKind.TEMPLATE: _INVALID,
    # Claude Code retries those for minutes by default.
    ProblemKind.UNAUTHORIZED: _Form(401, "authentication_error", retry=False),
    ProblemKind.FORBIDDEN: _Form(403, "permission_error"),
    ProblemKind.MODEL_NOT_FOUND: _Form(404, "not_found_error"),
    ProblemKind.NOT_FOUND: _Form(404, "not_found_error"),
    ProblemKind.ROUTE_NOT_FOUND: _Form(404, "not_found_error"),
    ProblemKind.METHOD_NOT_ALLOWED: _Form(405, "invalid_request_error"),
    ProblemKind.WRONG_HOST: _Form(421, "invalid_request_error"),
    ProblemKind.UNSUPPORTED_MEDIA: _Form(415, "invalid_request_error"),
    ProblemKind.TOO_LARGE: _Form(413, "request_too_large"),
    ProblemKind.TIMEOUT: _Form(504, "timeout_error", retry=False),
    ProblemKind.RATE_LIMITED: _Form(429, "rate_limit_error"),
    ProblemKind.TOKENS_LIMITED: _Form(429, "rate_limit_error"),
    ProblemKind.QUEUE_FULL: _OVERLOADED,
    ProblemKind.QUEUE_TIMEOUT: _OVERLOADED,
    ProblemKind.NO_WORKER: _OVERLOADED,
    ProblemKind.STORE_UNAVAILABLE: _OVERLOADED,
    ProblemKind.SHUTTING_DOWN: _OVERLOADED,
    ProblemKind.TOO_MANY_CONNECTIONS: _OVERLOADED,
    ProblemKind.CACHE_EXHAUSTED: _Form(500, "api_error", retry=False),
    ProblemKind.ENGINE_FAILED: _INTERNAL,
    ProblemKind.POISON: _Form(500, "api_error", retry=False),
    ProblemKind.CANCELLED: _Form(409, "invalid_request_error", retry=False),
    ProblemKind.LOST: _INTERNAL,
    ProblemKind.INTERNAL: _INTERNAL,
}


def error_object(problem: Problem, request_id: str) -> dict[str, object]:
    """Return the error body for ``problem``."""
    error: dict[str, object] = {"type": _FORMS[problem.kind].type, "message": _message(problem)}
    if problem.code == UNTHREADED:
        error["details"] = {"error_code": UNTHREADED}
    return {"type": "error", "error": error, "request_id": request_id}


def error_reply(problem: Problem, request_id: str) -> ErrorReply:
    """Return the HTTP error response for ``problem``."""
    form = _FORMS[problem.kind]
    body = msgspec.json.encode(error_object(problem, request_id))
    return ErrorReply(status=form.status, body=body, headers=retry_headers(problem, retry=form.retry))


def _message(problem: Problem) -> str:
    """Return the message, which starts with the field's path as in the reference.

    A prompt that is too long is reported in the reference's words: clients recognise them, and then shorten the
    conversation or ask for fewer tokens.
    """
    excess = problem.excess
    if problem.kind is not ProblemKind.CONTEXT_LENGTH:
        path = ".".join(re.findall(r"[^.\[\]]+", problem.param or ""))
        return f"{path}: {problem.message}" if path else problem.message
    if excess is None:
        return f"prompt is too long: {problem.message}"
    if excess.prompt > excess.limit:
        return f"prompt is too long: {excess.prompt} tokens > {excess.limit} maximum"
    return (
        f"input length and `max_tokens` exceed context limit: {excess.prompt} + {excess.completion} > {excess.limit}, "
        "decrease input length or `max_tokens` and try again"
    )
