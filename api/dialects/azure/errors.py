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
    status, code = FORMS[problem.kind].azure
    return status, problem.code or code


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
