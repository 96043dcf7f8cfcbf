"""Error responses of the OpenAI service."""

import msgspec

from api.dialects.base.interface import ErrorReply
from api.dialects.base.problems import FORMS, retry_headers
from shared.protocol.errors import Problem, ProblemKind

_PARAMS = {ProblemKind.CONTEXT_LENGTH: "messages", ProblemKind.TEMPLATE: "messages"}
"""The field that a kind of problem concerns, unless the problem names another one."""


def error_object(problem: Problem) -> dict[str, str | None]:
    """Return the value of the ``error`` key: message, type, param and code, all always present."""
    _, kind, code = FORMS[problem.kind].openai
    return {
        "message": problem.message,
        "type": kind,
        "param": problem.param or _PARAMS.get(problem.kind),
        "code": problem.code or code,
    }


def error_reply(problem: Problem) -> ErrorReply:
    """Return the HTTP error response for ``problem``."""
    status, _, _ = FORMS[problem.kind].openai
    body = msgspec.json.encode({"error": error_object(problem)})
    return ErrorReply(status=status, body=body, headers=retry_headers(problem))
