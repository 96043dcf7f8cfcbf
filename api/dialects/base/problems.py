"""OpenAI's form of errors, from which other dialects derive theirs, and headers that control retries."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from shared.protocol.errors import Problem
from shared.protocol.errors import ProblemKind as Kind

_INVALID, _SERVER = "invalid_request_error", "server_error"
_RATE, _QUOTA = "rate_limit_exceeded", "insufficient_quota"


class ErrorReply(msgspec.Struct, frozen=True, kw_only=True):
    """An HTTP error response. ``body`` is JSON; ``headers`` are sent in addition to the standard ones."""

    status: int
    body: bytes
    headers: Mapping[str, str] = {}


class Form(NamedTuple):
    """The form of a kind of problem in OpenAI's API. A problem's own code overrides the kind's."""

    status: int
    type: str
    code: str | None
    retry: bool = True
    """False if SDKs would retry the request but should not."""


FORMS: dict[Kind, Form] = {
    Kind.INVALID: Form(400, _INVALID, None),
    Kind.MODALITY: Form(400, _INVALID, None),
    Kind.CONTEXT_LENGTH: Form(400, _INVALID, "context_length_exceeded"),
    Kind.TEMPLATE: Form(400, _INVALID, "template_error"),
    Kind.UNAUTHORIZED: Form(401, _INVALID, "invalid_api_key"),
    Kind.FORBIDDEN: Form(403, _INVALID, "model_not_found"),
    Kind.MODEL_NOT_FOUND: Form(404, _INVALID, "model_not_found"),
    Kind.NOT_FOUND: Form(404, _INVALID, "not_found"),
    Kind.ROUTE_NOT_FOUND: Form(404, _INVALID, None),
    Kind.METHOD_NOT_ALLOWED: Form(405, _INVALID, "method_not_supported"),
    Kind.WRONG_HOST: Form(421, _INVALID, "host_not_allowed"),
    Kind.UNSUPPORTED_MEDIA: Form(415, _INVALID, "unsupported_content_type"),
    Kind.TOO_LARGE: Form(413, _INVALID, "request_too_large"),
    # The request has used up its time, and would do so again with each retry.
    Kind.TIMEOUT: Form(408, _INVALID, "request_timeout", retry=False),
    Kind.RATE_LIMITED: Form(429, "requests", _RATE),
    Kind.TOKENS_LIMITED: Form(429, "tokens", _RATE),
    # A retry can succeed only in hours; the SDKs would try at once.
    Kind.BUDGET: Form(429, _QUOTA, _QUOTA, retry=False),
    Kind.QUEUE_FULL: Form(429, "requests", _RATE),
    Kind.QUEUE_TIMEOUT: Form(503, _SERVER, "queue_timeout"),
    Kind.NO_WORKER: Form(503, _SERVER, "no_worker"),
    Kind.STORE_UNAVAILABLE: Form(503, _SERVER, "store_unavailable"),
    Kind.SHUTTING_DOWN: Form(503, _SERVER, "shutting_down"),
    Kind.TOO_MANY_CONNECTIONS: Form(503, _SERVER, "too_many_connections"),
    # A single request exceeded the KV cache, although others were preempted for it. A retry would fail again.
    Kind.CACHE_EXHAUSTED: Form(500, _SERVER, "kv_cache_exhausted", retry=False),
    Kind.ENGINE_FAILED: Form(500, _SERVER, "engine_failed"),
    Kind.POISON: Form(500, _SERVER, "engine_crash_loop", retry=False),
    Kind.LOST: Form(500, _SERVER, "answer_lost"),
    Kind.CANCELLED: Form(409, _INVALID, "cancelled", retry=False),
    Kind.INTERNAL: Form(500, _SERVER, "internal_error"),
}

ERROR_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}

_PARAMS = {Kind.CONTEXT_LENGTH: "messages", Kind.TEMPLATE: "messages"}
"""The field that a kind of problem concerns, unless the problem names another one."""


def error_object(problem: Problem) -> dict[str, str | None]:
    """Return the value of the ``error`` key in OpenAI's form: message, type, param and code, all always present."""
    form = FORMS[problem.kind]
    return {
        "message": problem.message,
        "type": form.type,
        "param": problem.param or _PARAMS.get(problem.kind),
        "code": problem.code or form.code,
    }


def error_reply(problem: Problem) -> ErrorReply:
    """Return the HTTP error response for ``problem`` in OpenAI's form."""
    body = msgspec.json.encode({"error": error_object(problem)})
    return ErrorReply(status=FORMS[problem.kind].status, body=body, headers=retry_headers(problem))


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
