"""How each dialect reports each kind of problem, OpenAI's form of errors, and headers that control retries."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from shared.protocol.errors import Problem
from shared.protocol.errors import ProblemKind as Kind

_INVALID, _SERVER, _API = "invalid_request_error", "server_error", "api_error"
_NOT_FOUND = "not_found_error"
_PROMPT, _CONTEXT = "invalid_prompt", "context_length_exceeded"
_RATE, _TOO_MANY, _QUOTA = "rate_limit_exceeded", "too_many_requests", "insufficient_quota"
_OVERLOADED = (529, "overloaded_error")


class ErrorReply(msgspec.Struct, frozen=True, kw_only=True):
    """An HTTP error response. ``body`` is JSON; ``headers`` are sent in addition to the standard ones."""

    status: int
    body: bytes
    headers: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a kind of problem in each dialect. A problem's own code overrides the kind's."""

    openai: tuple[int, str, str | None]
    """Status, type and code; those of OpenVINO Model Server, too."""
    anthropic: tuple[int, str]
    """Status and type."""
    azure: tuple[int, str]
    """Status and code. Its SDK retries after any 500, so failures that the request itself causes are 422."""
    responses: str = "server_error"
    """Code of a failed response in the Responses API."""
    retry: bool = True
    """False if SDKs would retry the request but should not."""


FORMS: dict[Kind, Form] = {
    Kind.INVALID: Form((400, _INVALID, None), (400, _INVALID), (422, "unprocessable_content"), _PROMPT),
    Kind.MODALITY: Form((400, _INVALID, None), (400, _INVALID), (404, "modality_not_supported"), _PROMPT),
    Kind.CONTEXT_LENGTH: Form((400, _INVALID, _CONTEXT), (400, _INVALID), (422, _CONTEXT), _PROMPT),
    Kind.TEMPLATE: Form((400, _INVALID, "template_error"), (400, _INVALID), (422, "template_error"), _PROMPT),
    Kind.UNAUTHORIZED: Form((401, _INVALID, "invalid_api_key"), (401, "authentication_error"), (401, "unauthorized")),
    Kind.FORBIDDEN: Form((403, _INVALID, "model_not_found"), (403, "permission_error"), (403, "forbidden")),
    Kind.MODEL_NOT_FOUND: Form((404, _INVALID, "model_not_found"), (404, _NOT_FOUND), (404, "model_not_found")),
    Kind.NOT_FOUND: Form((404, _INVALID, "not_found"), (404, _NOT_FOUND), (404, "not_found")),
    Kind.ROUTE_NOT_FOUND: Form((404, _INVALID, None), (404, _NOT_FOUND), (404, "not_found")),
    Kind.METHOD_NOT_ALLOWED: Form(
        (405, _INVALID, "method_not_supported"), (405, _INVALID), (405, "method_not_allowed")
    ),
    Kind.WRONG_HOST: Form((421, _INVALID, "host_not_allowed"), (421, _INVALID), (421, "host_not_allowed")),
    Kind.UNSUPPORTED_MEDIA: Form(
        (415, _INVALID, "unsupported_content_type"), (415, _INVALID), (415, "unsupported_media_type")
    ),
    Kind.TOO_LARGE: Form((413, _INVALID, "request_too_large"), (413, "request_too_large"), (413, "request_too_large")),
    # The request has used up its time, and would do so again with each retry.
    Kind.TIMEOUT: Form(
        (408, _INVALID, "request_timeout"), (504, "timeout_error"), (408, "request_timeout"), retry=False
    ),
    Kind.RATE_LIMITED: Form((429, "requests", _RATE), (429, "rate_limit_error"), (429, _TOO_MANY), _RATE),
    Kind.TOKENS_LIMITED: Form((429, "tokens", _RATE), (429, "rate_limit_error"), (429, _TOO_MANY), _RATE),
    # A retry can succeed only in hours; the SDKs would try at once.
    Kind.BUDGET: Form((429, _QUOTA, _QUOTA), (429, "rate_limit_error"), (429, _TOO_MANY), _RATE, retry=False),
    Kind.QUEUE_FULL: Form((429, "requests", _RATE), _OVERLOADED, (429, _TOO_MANY), _RATE),
    Kind.QUEUE_TIMEOUT: Form((503, _SERVER, "queue_timeout"), _OVERLOADED, (503, "queue_timeout")),
    Kind.NO_WORKER: Form((503, _SERVER, "no_worker"), _OVERLOADED, (503, "no_worker")),
    Kind.STORE_UNAVAILABLE: Form((503, _SERVER, "store_unavailable"), _OVERLOADED, (503, "store_unavailable")),
    Kind.SHUTTING_DOWN: Form((503, _SERVER, "shutting_down"), _OVERLOADED, (503, "shutting_down")),
    Kind.TOO_MANY_CONNECTIONS: Form((503, _SERVER, "too_many_connections"), _OVERLOADED, (503, "too_many_connections")),
    # A single request exceeded the KV cache, although others were preempted for it. A retry would fail again.
    Kind.CACHE_EXHAUSTED: Form(
        (500, _SERVER, "kv_cache_exhausted"), (500, _API), (422, "kv_cache_exhausted"), retry=False
    ),
    Kind.ENGINE_FAILED: Form((500, _SERVER, "engine_failed"), (500, _API), (500, "engine_failed")),
    Kind.POISON: Form((500, _SERVER, "engine_crash_loop"), (500, _API), (422, "engine_crash_loop"), retry=False),
    Kind.LOST: Form((500, _SERVER, "answer_lost"), (500, _API), (500, "answer_lost")),
    Kind.CANCELLED: Form((409, _INVALID, "cancelled"), (409, _INVALID), (409, "cancelled"), retry=False),
    Kind.INTERNAL: Form((500, _SERVER, "internal_error"), (500, _API), (500, "internal_error")),
}

_PARAMS = {Kind.CONTEXT_LENGTH: "messages", Kind.TEMPLATE: "messages"}
"""The field that a kind of problem concerns, unless the problem names another one."""


def error_object(problem: Problem) -> dict[str, str | None]:
    """Return the value of the ``error`` key in OpenAI's form: message, type, param and code, all always present."""
    _, kind, code = FORMS[problem.kind].openai
    return {
        "message": problem.message,
        "type": kind,
        "param": problem.param or _PARAMS.get(problem.kind),
        "code": problem.code or code,
    }


def error_reply(problem: Problem) -> ErrorReply:
    """Return the HTTP error response for ``problem`` in OpenAI's form."""
    status, _, _ = FORMS[problem.kind].openai
    body = msgspec.json.encode({"error": error_object(problem)})
    return ErrorReply(status=status, body=body, headers=retry_headers(problem))


def retry_after_headers(problem: Problem) -> dict[str, str]:
    """Return the headers with the time after which a retry may succeed; empty if it is unknown."""
    if problem.retry_after is None:
        return {}
    # The SDKs prefer the header in milliseconds; other clients read the standard one, in whole seconds.
    return {
        "retry-after": str(math.ceil(problem.retry_after)),
        "retry-after-ms": str(math.ceil(problem.retry_after * 1000)),
    }


def retry_headers(problem: Problem, *, retry: bool = True) -> dict[str, str]:
    """Return the headers that OpenAI's and Anthropic's SDKs obey. ``retry``: whether they should retry the problem."""
    headers = retry_after_headers(problem)
    # A request larger than its key's limit never fits, so that problem has no retry time.
    too_large = problem.kind is Kind.TOKENS_LIMITED and problem.retry_after is None
    if not retry or too_large or not FORMS[problem.kind].retry:
        headers["x-should-retry"] = "false"
    return headers
