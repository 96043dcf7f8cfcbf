"""Request bodies for the dialect tests."""

import json
from typing import Any

from api.dialects.openai import OpenAI
from shared.protocol.errors import Problem, RequestRefused
from shared.protocol.request import ChatRequest

USER = {"role": "user", "content": "Hello"}
DIALECT = OpenAI()


def body(**fields: Any) -> bytes:
    """A valid chat request with ``fields`` added or replaced."""
    return json.dumps({"model": "m", "messages": [USER]} | fields).encode()


def parse(**fields: Any) -> ChatRequest:
    """The request that such a body makes."""
    return DIALECT.parse(body(**fields))


def problem_of(raw: bytes) -> Problem | None:
    """Why the body is refused; None when it is not."""
    try:
        DIALECT.parse(raw)
    except RequestRefused as refusal:
        return refusal.problem
    return None


def error_of(raw: bytes) -> tuple[int, dict[str, str | None]]:
    """Status and error object of a body that is refused."""
    problem = problem_of(raw)
    assert problem is not None, f"not refused: {raw[:200]!r}"
    reply = DIALECT.error(problem)
    return reply.status, json.loads(reply.body)["error"]
