"""Error responses of the OpenAI service: status, error object, and headers that control the SDKs' retries."""

from dataclasses import dataclass

import msgspec

from api.dialects.base.interface import ErrorReply
from api.dialects.base.retries import retry_headers
from shared.protocol.errors import Problem, ProblemKind


@dataclass(frozen=True, slots=True)
class _Form:
    """Encoding of a kind of problem. A problem's own code and param override ``code`` and ``param``."""

    status: int
    type: str = "invalid_request_error"
    code: str | None = None
    param: str | None = None
    retry: bool = True
    """False if the SDKs would retry the request but should not."""


_FORMS: dict[ProblemKind, _Form] = {
    ProblemKind.INVALID: _Form(400),
    ProblemKind.MODALITY: _Form(400),
    ProblemKind.CONTEXT_LENGTH: _Form(400, code="context_length_exceeded", param="messages"),
    ProblemKind.TEMPLATE: _Form(400, code="template_error", param="messages"),
    ProblemKind.UNAUTHORIZED: _Form(401, code="invalid_api_key"),
    ProblemKind.FORBIDDEN: _Form(403, code="model_not_found"),
    ProblemKind.MODEL_NOT_FOUND: _Form(404, code="model_not_found"),
    ProblemKind.NOT_FOUND: _Form(404, code="not_found"),
    ProblemKind.ROUTE_NOT_FOUND: _Form(404),
    ProblemKind.METHOD_NOT_ALLOWED: _Form(405, code="method_not_supported"),
    ProblemKind.WRONG_HOST: _Form(421, code="host_not_allowed"),
    ProblemKind.UNSUPPORTED_MEDIA: _Form(415, code="unsupported_content_type"),
    ProblemKind.TOO_LARGE: _Form(413, code="request_too_large"),
    # The request has used up its time, and would do so again with each retry.
    ProblemKind.TIMEOUT: _Form(408, code="request_timeout", retry=False),
    ProblemKind.RATE_LIMITED: _Form(429, type="requests", code="rate_limit_exceeded"),
    ProblemKind.TOKENS_LIMITED: _Form(429, type="tokens", code="rate_limit_exceeded"),
    ProblemKind.QUEUE_FULL: _Form(429, type="requests", code="rate_limit_exceeded"),
    ProblemKind.QUEUE_TIMEOUT: _Form(503, type="server_error", code="queue_timeout"),
    ProblemKind.NO_WORKER: _Form(503, type="server_error", code="no_worker"),
    ProblemKind.STORE_UNAVAILABLE: _Form(503, type="server_error", code="store_unavailable"),
    ProblemKind.SHUTTING_DOWN: _Form(503, type="server_error", code="shutting_down"),
    ProblemKind.TOO_MANY_CONNECTIONS: _Form(503, type="server_error", code="too_many_connections"),
    # A single request exceeded the KV cache, although others were preempted for it. A retry would fail again.
    ProblemKind.CACHE_EXHAUSTED: _Form(500, type="server_error", code="kv_cache_exhausted", retry=False),
    ProblemKind.ENGINE_FAILED: _Form(500, type="server_error", code="engine_failed"),
    ProblemKind.POISON: _Form(500, type="server_error", code="engine_crash_loop", retry=False),
    ProblemKind.LOST: _Form(500, type="server_error", code="answer_lost"),
    ProblemKind.CANCELLED: _Form(409, code="cancelled", retry=False),
    ProblemKind.INTERNAL: _Form(500, type="server_error", code="internal_error"),
}


def error_object(problem: Problem) -> dict[str, str | None]:
    """Return the value of the ``error`` key: message, type, param and code, all always present."""
    form = _FORMS[problem.kind]
    return {
        "message": problem.message,
        "type": form.type,
        "param": problem.param or form.param,
        "code": problem.code or form.code,
    }


def error_reply(problem: Problem) -> ErrorReply:
    """Return the HTTP error response for ``problem``."""
    form = _FORMS[problem.kind]
    body = msgspec.json.encode({"error": error_object(problem)})
    return ErrorReply(status=form.status, body=body, headers=retry_headers(problem, retry=form.retry))
