"""The OpenAPI document: every route, with the request models that the dialects check bodies against."""

from functools import cache
from typing import Any

import msgspec

from api.dialects.openai.schema import ChatCompletionRequest
from shared.version import VERSION

_REFERENCE = "#/components/schemas/{model}"
_JSON = "application/json"


@cache
def document() -> bytes:
    """The document as JSON."""
    schemas: dict[str, Any] = {"Error": _ERROR}
    chat = ChatCompletionRequest.model_json_schema(ref_template=_REFERENCE, mode="validation")
    schemas |= chat.pop("$defs", {})
    schemas["ChatCompletionRequest"] = chat
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Vinoqueue",
                "version": VERSION,
                "description": "Chat completions on OpenVINO, spread over as many hosts as you have.",
            },
            "paths": _paths(),
            "components": {"schemas": schemas},
        }
    )


def _paths() -> dict[str, Any]:
    return {
        "/v1/chat/completions": {
            "post": _operation(
                "createChatCompletion",
                "Create a chat completion, streamed or not.",
                ok={_JSON: {"schema": {"type": "object"}}, "text/event-stream": {"schema": {"type": "string"}}},
                body="ChatCompletionRequest",
                errors=(400, 404, 408, 413, 415, 429, 500, 503),
            )
        },
        "/v1/models": {"get": _operation("listModels", "List the models that live workers serve.")},
        "/v1/models/{model}": {
            "get": _operation("retrieveModel", "Describe one model.", errors=(404,)),
            "parameters": [
                {"name": "model", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
            ],
        },
        "/live": {"get": _operation("live", "Whether the process runs.")},
        "/ready": {"get": _operation("ready", "Whether a request would be accepted now.", errors=(503,))},
        "/health": {"get": _operation("health", "The state of this replica and the fleet.", errors=(503,))},
        "/metrics": {
            "get": _operation("metrics", "Prometheus metrics.", ok={"text/plain": {"schema": {"type": "string"}}})
        },
        "/openapi.json": {"get": _operation("openapi", "This document.")},
    }


def _operation(
    name: str,
    summary: str,
    *,
    ok: dict[str, Any] | None = None,
    body: str | None = None,
    errors: tuple[int, ...] = (),
) -> dict[str, Any]:
    responses: dict[str, Any] = {
        "200": {"description": "OK", "content": ok or {_JSON: {"schema": {"type": "object"}}}},
    }
    for status in errors:
        responses[str(status)] = {
            "description": "Refused or failed; the body says why.",
            "content": {_JSON: {"schema": {} if status == 503 else {"$ref": _REFERENCE.format(model="Error")}}},
        }
    operation: dict[str, Any] = {"operationId": name, "summary": summary, "responses": responses}
    if body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {_JSON: {"schema": {"$ref": _REFERENCE.format(model=body)}}},
        }
    return operation


_ERROR = {
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
