"""Building blocks of the OpenAPI document."""

from typing import Any

REFERENCE = "#/components/schemas/{model}"
JSON = "application/json"
COMMON_ERRORS = (400, 421, 503)
"""Errors of every route but the probes: an invalid Host header, a disallowed host name, too many connections."""
STORE_ERRORS = (400, 401, 404, 500, 503)
ERRORS = (400, 401, 403, 404, 408, 413, 415, 429, 500, 503)


def in_path(name: str) -> dict[str, Any]:
    """Return a parameter in the path."""
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def query(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return a parameter in the query."""
    return {"name": name, "in": "query", "schema": schema}


def operation(
    name: str,
    summary: str,
    *,
    ok: dict[str, Any] | None = None,
    body: str | None = None,
    errors: tuple[int, ...] = (),
    common_errors: tuple[int, ...] = COMMON_ERRORS,
) -> dict[str, Any]:
    """Return an operation; ``ok`` is the content of its 200, ``body`` the name of its body's schema."""
    responses: dict[str, Any] = {
        "200": {"description": "OK", "content": ok or {JSON: {"schema": {"type": "object"}}}},
    }
    for status in sorted({*errors, *common_errors}):
        responses[str(status)] = {
            "description": "Error; the body describes it.",
            "content": {JSON: {"schema": {} if status == 503 else {"$ref": REFERENCE.format(model="Error")}}},
        }
    operation: dict[str, Any] = {"operationId": name, "summary": summary, "responses": responses}
    if body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {JSON: {"schema": {"$ref": REFERENCE.format(model=body)}}},
        }
    return operation
