"""Error bodies of the Azure AI model inference API, whose form depends on the status."""

import json
import re
from collections.abc import Mapping
from http import HTTPStatus

import msgspec

from api.dialects.base.problems import FORMS, ErrorReply, retry_after_headers
from shared.protocol.errors import Problem, ProblemKind

INVALID_REQUEST = "invalid_request"
INVALID_API_VERSION = "invalid_api_version"

_FORMS: dict[ProblemKind, tuple[int, str | None]] = {
    ProblemKind.INVALID: (422, "unprocessable_content"),
    ProblemKind.MODALITY: (404, "modality_not_supported"),
    ProblemKind.CONTEXT_LENGTH: (422, None),
    ProblemKind.TEMPLATE: (422, None),
    ProblemKind.UNAUTHORIZED: (401, "unauthorized"),
    ProblemKind.FORBIDDEN: (403, "forbidden"),
    ProblemKind.ROUTE_NOT_FOUND: (404, "not_found"),
    ProblemKind.METHOD_NOT_ALLOWED: (405, "method_not_allowed"),
    ProblemKind.UNSUPPORTED_MEDIA: (415, "unsupported_media_type"),
    ProblemKind.CACHE_EXHAUSTED: (422, None),
    ProblemKind.POISON: (422, None),
}
"""Statuses and codes that differ from OpenAI's. The SDK retries after any 500, so failures that the request itself
causes are 422."""

ERROR_SCHEMA = {
    "type": "object",
    "required": ["error", "message", "status"],
    "properties": {
        "error": {"type": "string"},
        "message": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string"},
        "param": {"type": ["string", "null"]},
        "detail": {
            "type": "object",
            "required": ["loc", "value"],
            "properties": {
                "loc": {"type": "array", "items": {"type": "string"}},
                "value": {"type": ["string", "null"]},
            },
        },
    },
}

_BAD_REQUESTS = (INVALID_REQUEST, INVALID_API_VERSION)
"""Codes of requests that violate the API itself, which get 400. Other invalid values are valid by the reference but not
for the model, and get 422."""

_PIECEWISE = json.JSONEncoder(ensure_ascii=False)

_SHOWN = 256
"""Maximum number of characters of a client's value that an error quotes."""


_PHRASES = {413: "Content Too Large", 422: "Unprocessable Content"}
"""Phrases of statuses that are older in Python 3.11."""


def error_object(problem: Problem, body: Mapping[str, object]) -> dict[str, object]:
    """Return the error body for ``problem``. ``body`` is the request body as far as it could be parsed."""
    status, code = _status_and_code(problem)
    prefix = "Modality not supported by the model. " if problem.kind is ProblemKind.MODALITY else ""
    phrase = _PHRASES.get(status, HTTPStatus(status).phrase)
    error: dict[str, object] = {"error": phrase, "message": prefix + problem.message, "status": status}
    if status in (401, 404, 429):
        return error
    error["code"] = code
    if status == 422:
        path = _path(problem.param or "messages")
        error["detail"] = {"loc": ["body", *path], "value": _value_at(path, body)}
    else:
        error["param"] = problem.param
    return error


def error_reply(problem: Problem, body: Mapping[str, object]) -> ErrorReply:
    status, code = _status_and_code(problem)
    headers = {"x-ms-error-code": code} | retry_after_headers(problem)
    return ErrorReply(status=status, body=msgspec.json.encode(error_object(problem, body)), headers=headers)


def _status_and_code(problem: Problem) -> tuple[int, str]:
    if problem.kind is ProblemKind.INVALID and (problem.param is None or problem.code in _BAD_REQUESTS):
        return 400, problem.code or INVALID_REQUEST
    form = FORMS[problem.kind]
    status, code = _FORMS.get(problem.kind, (form.status, "too_many_requests" if form.status == 429 else None))
    return status, problem.code or code or form.code or ""


def _path(param: str) -> list[str]:
    """Split a path such as ``messages[0].content`` into ``messages``, ``0`` and ``content``."""
    return re.findall(r"[^.\[\]]+", param)


def _value_at(path: list[str], body: Mapping[str, object]) -> str | None:
    """Return the value at ``path`` as text, as in the reference; None if there is none."""
    value: object = body
    for step in path:
        if isinstance(value, Mapping) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return shown(value)


def shown(value: object) -> str:
    """Return the beginning of a value, without encoding all of it: the value may be megabytes of messages."""
    text = ""
    for piece in (value,) if isinstance(value, str) else _PIECEWISE.iterencode(value):
        text += piece
        if len(text) > _SHOWN:
            return text[:_SHOWN] + "…"
    return text
