"""The OpenAPI document: every route, with the models by which the dialects validate request bodies."""

import json
from collections.abc import Collection
from functools import cache
from typing import Any

import msgspec
from pydantic import BaseModel

from api.batches.forms import CreateBatchRequest
from api.dialects.anthropic import DEFAULT_VERSION, VERSION_HEADER, VERSION_PATTERN
from api.dialects.anthropic.schema import CountTokensRequest, MessagesRequest
from api.dialects.azure import parse as azure
from api.dialects.azure.addressing import DEPLOYMENT_HEADER
from api.dialects.base.unsupported import supported_fields
from api.dialects.openai.extended import ExtendedChatRequest
from api.dialects.openai.extensions import ServedChatRequest, ServedCompletionRequest
from api.dialects.openai.tokens import DetokenizeRequest, TokenizeRequest
from api.dialects.ovms import fields as model_server
from api.dialects.ovms.parse import ModelServerChatRequest, ModelServerCompletionRequest
from api.dialects.ovms.responses import STORED_FIELDS, ModelServerResponsesRequest
from api.dialects.responses.input_tokens import InputTokensRequest
from api.dialects.responses.schema import ResponsesRequest
from api.fleet.document import FleetDocument
from api.operations.openapi_files import paths as files_and_batches
from api.operations.openapi_parts import ERRORS, JSON, REFERENCE, STORE_ERRORS, in_path, query
from api.operations.openapi_parts import operation as _operation
from api.operations.openapi_responses import paths as responses
from shared.runtime.version import VERSION

BODIES: tuple[tuple[str, type[BaseModel], Collection[str]], ...] = (
    ("ChatCompletionRequest", ServedChatRequest, supported_fields(ServedChatRequest)),
    ("CompletionRequest", ServedCompletionRequest, supported_fields(ServedCompletionRequest)),
    ("CreateBatchRequest", CreateBatchRequest, supported_fields(CreateBatchRequest)),
    ("TokenizeRequest", TokenizeRequest, supported_fields(TokenizeRequest)),
    ("DetokenizeRequest", DetokenizeRequest, supported_fields(DetokenizeRequest)),
    ("CountTokensRequest", CountTokensRequest, supported_fields(CountTokensRequest)),
    ("MessagesRequest", MessagesRequest, supported_fields(MessagesRequest)),
    ("ResponsesRequest", ResponsesRequest, supported_fields(ResponsesRequest)),
    ("InputTokensRequest", InputTokensRequest, supported_fields(InputTokensRequest)),
    ("ModelServerChatRequest", ModelServerChatRequest, model_server.CHAT),
    ("ModelServerCompletionRequest", ModelServerCompletionRequest, model_server.COMPLETION),
    (
        "ModelServerResponsesRequest",
        ModelServerResponsesRequest,
        supported_fields(ModelServerResponsesRequest) - {*STORED_FIELDS},
    ),
    ("AzureChatRequest", ExtendedChatRequest, azure.SERVED),
)
"""Name, model and supported fields of each dialect's requests."""


@cache
def document() -> bytes:
    """Return the document as JSON."""
    _, fleet = msgspec.json.schema_components([FleetDocument], ref_template="#/components/schemas/{name}")
    schemas: dict[str, Any] = {
        **fleet,
        "Error": _ERROR,
        "AzureError": _AZURE_ERROR,
        "AnthropicError": _ANTHROPIC_ERROR,
        "ChatCompletionUpdate": _UPDATE,
    }
    for name, model, served in BODIES:
        body = _without_conflicts(name, model.model_json_schema(ref_template=REFERENCE, mode="validation"), schemas)
        schemas |= body.pop("$defs", {})
        schemas[name] = _only(served, body)
    # The formats that OpenAI does not have are validated by the worker.
    schemas["ModelServerChatRequest"]["properties"]["response_format"] = _TYPED_OBJECT
    # With a single model, its name may be omitted.
    schemas["AzureChatRequest"]["required"] = ["messages"]
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Vinoqueue",
                "version": VERSION,
                "description": "OpenAI-compatible chat completions on OpenVINO, on any number of hosts.",
            },
            "paths": _paths(),
            "components": {"schemas": schemas, "securitySchemes": _KEYS},
            # A key is needed only if the service requires keys.
            "security": [{}, *({scheme: []} for scheme in _KEYS)],
        }
    )


def _without_conflicts(owner: str, body: dict[str, Any], taken: dict[str, Any]) -> dict[str, Any]:
    """Return ``body`` with a prefix before names of inner schemas that other schemas have ``taken``, such as
    ``Message``."""
    inner = body.get("$defs", {})
    conflicting = [name for name, schema in inner.items() if taken.get(name, schema) != schema]
    body = body | {"$defs": {f"{owner}{name}" if name in conflicting else name: inner[name] for name in inner}}
    text = json.dumps(body)
    for name in conflicting:
        text = text.replace(f'"{REFERENCE.format(model=name)}"', f'"{REFERENCE.format(model=owner + name)}"')
    renamed: dict[str, Any] = json.loads(text)
    return renamed


def _only(served: Collection[str], schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object with the fields in ``served`` only."""
    return schema | {
        "properties": {name: field for name, field in schema["properties"].items() if name in served},
        "required": [name for name in schema["required"] if name in served],
    }


def _paths() -> dict[str, Any]:
    return {
        "/v1/chat/completions": {
            "post": _completion("createChatCompletion", "ChatCompletionRequest", ERRORS),
            "get": _operation("listChatCompletions", "List stored chat completions.", errors=STORE_ERRORS)
            | {"parameters": [*_PAGE_PARAMETERS, query("model", {"type": "string"})]},
        },
        "/v1/chat/completions/{completion}": {
            "get": _operation("getChatCompletion", "Read a stored chat completion.", errors=STORE_ERRORS),
            "post": _operation(
                "updateChatCompletion",
                "Replace the metadata of a stored chat completion.",
                body="ChatCompletionUpdate",
                errors=(*STORE_ERRORS, 408, 413, 415),
            ),
            "delete": _operation("deleteChatCompletion", "Delete a stored chat completion.", errors=STORE_ERRORS),
            "parameters": [in_path("completion")],
        },
        "/v1/chat/completions/{completion}/messages": {
            "get": _operation(
                "listChatCompletionMessages",
                "List the input messages of a stored chat completion.",
                errors=STORE_ERRORS,
            ),
            "parameters": [in_path("completion"), *_PAGE_PARAMETERS],
        },
        **files_and_batches(),
        "/v1/completions": {"post": _completion("createCompletion", "CompletionRequest", ERRORS)},
        "/tokenize": {
            "post": _operation("tokenize", "List the tokens of a prompt.", body="TokenizeRequest", errors=ERRORS)
        },
        "/detokenize": {
            "post": _operation("detokenize", "Return the text of tokens.", body="DetokenizeRequest", errors=ERRORS)
        },
        **responses(),
        "/v1/messages": _messages(),
        "/v1/messages/count_tokens": _count_tokens(),
        "/v1/models": {"get": _operation("listModels", "List the served models.", errors=(401,))},
        "/v1/models/{model}": {
            "get": _operation("retrieveModel", "Describe a model.", errors=(401, 404, 503)),
            "parameters": [in_path("model")],
        },
        "/v3/chat/completions": {"post": _completion("modelServerChat", "ModelServerChatRequest", ERRORS)},
        "/v3/completions": {"post": _completion("modelServerCompletion", "ModelServerCompletionRequest", ERRORS)},
        "/v3/models": {"get": _operation("modelServerModels", "List the served models.", errors=(401,))},
        "/v3/models/{model}": {
            "get": _operation("modelServerModel", "Describe a model.", errors=(401, 404, 503)),
            "parameters": [in_path("model")],
        },
        "/chat/completions": _azure_chat("azureChat"),
        "/models/chat/completions": _azure_chat("azureModelsChat"),
        "/info": _azure_info("azureInfo"),
        "/models/info": _azure_info("azureModelsInfo"),
        "/v1/fleet": {"get": _operation("fleet", "State of the whole service.", ok=_FLEET, errors=(401, 403))},
        "/v1/fleet/events": {
            "get": _operation(
                "fleetEvents",
                "The state of the whole service, twice a second, as server-sent events with a fleet document each.",
                ok={"text/event-stream": {}},
                errors=(401, 403),
            )
        },
        "/live": {"get": _probe("live", "Liveness probe.")},
        "/ready": {"get": _probe("ready", "Readiness probe.", errors=(503,))},
        "/health": {"get": _probe("health", "State of this replica and of the fleet.", errors=(503,))},
        "/metrics": {
            "get": _operation("metrics", "Prometheus metrics.", ok={"text/plain": {"schema": {"type": "string"}}})
        },
        "/": {"get": _operation("page", "The web page.", ok=_PAGE, errors=(404,))},
        "/web/{file}": {
            "get": _operation("pageFile", "A file of the web page.", ok=_PAGE, errors=(404,)),
            "parameters": [in_path("file")],
        },
        "/openapi.json": {"get": _operation("openapi", "This document.")},
    }


def _completion(name: str, body: str, errors: tuple[int, ...]) -> dict[str, Any]:
    return _operation(
        name,
        "Create a completion, streamed or not.",
        ok={JSON: {"schema": {"type": "object"}}, "text/event-stream": {}},
        body=body,
        errors=errors,
    )


def _messages() -> dict[str, Any]:
    operation = _completion("createMessage", "MessagesRequest", (400, 401, 403, 404, 413, 415, 429, 500, 504, 529))
    return {"post": _with_errors(operation, "AnthropicError"), "parameters": [_ANTHROPIC_VERSION]}


def _count_tokens() -> dict[str, Any]:
    errors = (400, 401, 403, 404, 413, 415, 429, 500, 504, 529)
    operation = _operation("countTokens", "Count the tokens of a prompt.", body="CountTokensRequest", errors=errors)
    return {"post": _with_errors(operation, "AnthropicError"), "parameters": [_ANTHROPIC_VERSION]}


def _azure_chat(name: str) -> dict[str, Any]:
    operation = _azure(_completion(name, "AzureChatRequest", (*ERRORS, 422)))
    return {"post": operation, "parameters": [*_AZURE_PARAMETERS, _EXTRA_PARAMETERS]}


def _azure_info(name: str) -> dict[str, Any]:
    operation = _azure(_operation(name, "Describe the model.", errors=(400, 401, 404, 503)))
    return {"get": operation, "parameters": _AZURE_PARAMETERS}


def _azure(operation: dict[str, Any]) -> dict[str, Any]:
    return _with_errors(operation, "AzureError")


def _with_errors(operation: dict[str, Any], schema: str) -> dict[str, Any]:
    """Return ``operation`` with the error schema of its interface."""
    for status, response in operation["responses"].items():
        if int(status) >= 400:
            response["content"][JSON]["schema"] = {"$ref": REFERENCE.format(model=schema)}
    return operation


def _probe(name: str, summary: str, errors: tuple[int, ...] = ()) -> dict[str, Any]:
    return _operation(name, summary, errors=errors, common_errors=(400,))


_PAGE = {kind: {"schema": {"type": "string"}} for kind in ("text/html", "text/javascript", "text/css")}

_FLEET = {JSON: {"schema": {"$ref": REFERENCE.format(model="FleetDocument")}}}

_KEYS = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "apiKey": {"type": "apiKey", "in": "header", "name": "api-key"},
    "xApiKey": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}

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

_AZURE_ERROR = {
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

_ANTHROPIC_ERROR = {
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

_ANTHROPIC_VERSION = {
    "name": VERSION_HEADER,
    "in": "header",
    "schema": {"type": "string", "pattern": VERSION_PATTERN, "default": DEFAULT_VERSION},
}

_UPDATE = {
    "type": "object",
    "required": ["metadata"],
    "properties": {"metadata": {"type": ["object", "null"], "additionalProperties": {"type": "string"}}},
}

_PAGE_PARAMETERS = [
    query("after", {"type": "string"}),
    query("limit", {"type": "integer", "minimum": 1, "maximum": 100}),
    query("order", {"type": "string", "enum": ["asc", "desc"]}),
]

_TYPED_OBJECT = {"type": "object", "required": ["type"], "properties": {"type": {"type": "string"}}}

_AZURE_PARAMETERS = [
    {
        "name": "api-version",
        "in": "query",
        "required": True,
        "schema": {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}(-preview)?$"},
    },
    {"name": DEPLOYMENT_HEADER, "in": "header", "schema": {"type": "string"}},
]

_EXTRA_PARAMETERS = {
    "name": azure.EXTRA_PARAMETERS_HEADER,
    "in": "header",
    "schema": {"type": "string", "enum": list(azure.ExtraParameters)},
}
