"""The Responses API in the OpenAPI document."""

from typing import Any

from api.operations.openapi_parts import ERRORS, JSON, STORE_ERRORS, in_path, operation, query

_STREAMED = {JSON: {"schema": {"type": "object"}}, "text/event-stream": {}}

_INCLUDE = query("include[]", {"type": "array", "items": {"type": "string"}})


def paths() -> dict[str, Any]:
    """Return the operations on responses, by path."""
    return {
        "/v1/responses": {
            "post": operation(
                "createResponse",
                "Create a response: whole, streamed, or in the background.",
                ok=_STREAMED,
                body="ResponsesRequest",
                errors=ERRORS,
            ),
        },
        "/v3/responses": {
            "post": operation(
                "modelServerResponse",
                "Create a response, streamed or not.",
                ok=_STREAMED,
                body="ModelServerResponsesRequest",
                errors=ERRORS,
            )
        },
        "/v1/responses/{response}": {
            "get": operation(
                "getResponse",
                "Read a stored response, or stream a background response again.",
                ok=_STREAMED,
                errors=STORE_ERRORS,
            )
            | {
                "parameters": [
                    _INCLUDE,
                    query("include_obfuscation", {"type": "boolean", "enum": [False]}),
                    query("stream", {"type": "boolean"}),
                    query("starting_after", {"type": "integer", "minimum": 0}),
                ]
            },
            "delete": operation("deleteResponse", "Delete a stored response.", errors=STORE_ERRORS),
            "parameters": [in_path("response")],
        },
        "/v1/responses/input_tokens": {
            "post": operation(
                "countInputTokens", "Count the tokens of an input.", body="InputTokensRequest", errors=ERRORS
            )
        },
        "/v1/responses/{response}/cancel": {
            "post": operation("cancelResponse", "Cancel a background response.", errors=STORE_ERRORS),
            "parameters": [in_path("response")],
        },
        "/v1/responses/{response}/input_items": {
            "get": operation("listInputItems", "List the input items of a stored response.", errors=STORE_ERRORS),
            "parameters": [
                in_path("response"),
                query("after", {"type": "string"}),
                _INCLUDE,
                query("limit", {"type": "integer", "minimum": 1, "maximum": 100}),
                query("order", {"type": "string", "enum": ["asc", "desc"]}),
            ],
        },
    }
