"""Error bodies of Anthropic's API."""

import re

import msgspec

from api.dialects.base.problems import FORMS, ErrorReply, retry_headers
from shared.protocol.errors import Problem, ProblemKind

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}
"""Types of errors by status; others are invalid requests."""
ERROR_SCHEMA = {
    "type": "object",
    "required": ["type", "error", "request_id"],
    "properties": {
        "type": {"const": "error"},
        "error": {
            "type": "object",
            "required": ["type", "message"],
            "properties": {"type": {"type": "string"}, "message": {"type": "string"}},
        },
        "request_id": {"type": "string"},
    },
}
UNTHREADED = "thread_unsupported_request"
"""Code of a refused ``thread``. The SDK's tool runner, which sends it by default, then continues without one."""


def error_object(problem: Problem, request_id: str) -> dict[str, object]:
    kind = _TYPES.get(_status(problem.kind), "invalid_request_error")
    error: dict[str, object] = {"type": kind, "message": _message(problem)}
    if problem.code == UNTHREADED:
        error["details"] = {"error_code": UNTHREADED}
    return {"type": "error", "error": error, "request_id": request_id}


def error_reply(problem: Problem, request_id: str) -> ErrorReply:
    body = msgspec.json.encode(error_object(problem, request_id))
    # Claude Code retries unauthorized requests for minutes by default.
    headers = retry_headers(problem, retry=problem.kind is not ProblemKind.UNAUTHORIZED)
    return ErrorReply(status=_status(problem.kind), body=body, headers=headers)


def _status(kind: ProblemKind) -> int:
    """Return the status of a problem: as in the reference, 529 for what passes."""
    if kind is ProblemKind.TIMEOUT:
        return 504
    status = FORMS[kind].status
    return 529 if status == 503 or kind is ProblemKind.QUEUE_FULL else status


def _message(problem: Problem) -> str:
    """Return the message, which starts with the field's path as in the reference.

    A prompt that is too long is reported in the reference's words: clients recognise them, and then shorten the
    conversation. With a prompt as long as the context, the first token of the output is too much.
    """
    excess = problem.excess
    if problem.kind is not ProblemKind.CONTEXT_LENGTH:
        path = ".".join(re.findall(r"[^.\[\]]+", problem.param or ""))
        return f"{path}: {problem.message}" if path else problem.message
    if excess is None:
        return f"prompt is too long: {problem.message}"
    return f"prompt is too long: {max(excess.prompt, excess.limit + 1)} tokens > {excess.limit} maximum"
