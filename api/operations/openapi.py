"""The OpenAPI document: every route, with the models by which the dialects validate request bodies."""

import json
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import msgspec
from pydantic import BaseModel

from api.batches.forms import CreateBatchRequest
from api.dialects.anthropic import DEFAULT_VERSION, VERSION_HEADER, VERSION_PATTERN
from api.dialects.anthropic.schema import CountTokensRequest, MessagesRequest
from api.dialects.azure import parse as azure
from api.dialects.base.models import NamedModel
from api.dialects.base.unsupported import supported_fields
from api.dialects.openai.extended import ExtendedChatRequest
from api.dialects.openai.extensions import ServedChatRequest, ServedCompletionRequest
from api.dialects.openai.stored import UpdateRequest
from api.dialects.openai.tokens import DetokenizeRequest, TokenizeRequest
from api.dialects.ovms.parse import ModelServerChatRequest, ModelServerCompletionRequest
from api.dialects.ovms.responses import STORED_FIELDS, ModelServerResponsesRequest
from api.dialects.ovms.tokens import ModelServerTokenizeRequest
from api.dialects.responses.input_tokens import InputTokensRequest
from api.dialects.responses.schema import ResponsesRequest
from api.fleet.document import FleetDocument
from api.http.routes import JSON, PROBE_PATHS, Route, routes_of
from api.organization.key_forms import (
    CreateApiKeyRequest,
    CreateProjectRequest,
    UpdateApiKeyRequest,
    UpdateProjectRequest,
)
from shared.runtime.version import VERSION

REFERENCE = "#/components/schemas/{model}"
COMMON_ERRORS = (400, 421, 503)
"""Errors of every route but the probes: an invalid Host header, a disallowed host name, too many connections."""

BODIES: tuple[tuple[str, type[BaseModel], Collection[str]], ...] = (
    ("ChatCompletionRequest", ServedChatRequest, supported_fields(ServedChatRequest)),
    ("CompletionRequest", ServedCompletionRequest, supported_fields(ServedCompletionRequest)),
    ("CreateApiKeyRequest", CreateApiKeyRequest, supported_fields(CreateApiKeyRequest)),
    ("UpdateApiKeyRequest", UpdateApiKeyRequest, supported_fields(UpdateApiKeyRequest)),
    ("CreateProjectRequest", CreateProjectRequest, supported_fields(CreateProjectRequest)),
    ("UpdateProjectRequest", UpdateProjectRequest, supported_fields(UpdateProjectRequest)),
    ("CreateBatchRequest", CreateBatchRequest, supported_fields(CreateBatchRequest)),
    ("TokenizeRequest", TokenizeRequest, supported_fields(TokenizeRequest)),
    ("DetokenizeRequest", DetokenizeRequest, supported_fields(DetokenizeRequest)),
    ("CountTokensRequest", CountTokensRequest, supported_fields(CountTokensRequest)),
    ("MessagesRequest", MessagesRequest, supported_fields(MessagesRequest)),
    ("ResponsesRequest", ResponsesRequest, supported_fields(ResponsesRequest)),
    ("InputTokensRequest", InputTokensRequest, supported_fields(InputTokensRequest)),
    ("ModelServerChatRequest", ModelServerChatRequest, supported_fields(ModelServerChatRequest)),
    (
        "ModelServerCompletionRequest",
        ModelServerCompletionRequest,
        supported_fields(ModelServerCompletionRequest),
    ),
    (
        "ModelServerResponsesRequest",
        ModelServerResponsesRequest,
        supported_fields(ModelServerResponsesRequest) - {*STORED_FIELDS},
    ),
    (
        "ModelServerTokenizeRequest",
        ModelServerTokenizeRequest,
        supported_fields(ModelServerTokenizeRequest),
    ),
    ("ChatCompletionUpdate", UpdateRequest, frozenset(UpdateRequest.model_fields)),
    ("NamedModel", NamedModel, supported_fields(NamedModel)),
    ("AzureChatRequest", ExtendedChatRequest, azure.SERVED),
)
"""Name, model and supported fields of each dialect's requests."""


def document(handlers: Iterable[type]) -> bytes:
    """Return the document of the routes of ``handlers`` as JSON."""
    _, fleet = msgspec.json.schema_components([FleetDocument], ref_template="#/components/schemas/{name}")
    schemas: dict[str, Any] = {
        **fleet,
        "Error": _ERROR,
        "AzureError": _AZURE_ERROR,
        "AnthropicError": _ANTHROPIC_ERROR,
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
            "paths": _paths(route for handler in handlers for route, _ in routes_of(handler)),
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
    return schema | {
        "properties": {name: field for name, field in schema["properties"].items() if name in served},
        "required": [name for name in schema.get("required", ()) if name in served],
    }


def _paths(routes: Iterable[Route]) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        path = re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route)
    return paths


def _operation(route: Route) -> dict[str, Any]:
    error, headers = _interface(route.path)
    common = (400,) if route.path in PROBE_PATHS else COMMON_ERRORS
    responses: dict[str, Any] = {"200": {"description": "OK", "content": dict(_content(route))}}
    for status in sorted({*route.errors, *common}):
        schema: dict[str, Any] = _reference(error) if status != 503 or error != "Error" else {}
        if error == "AzureError" and route.body:
            # Without an API version the request is one of OpenAI's.
            schema = {"anyOf": [schema, _reference("Error")]}
        responses[str(status)] = {
            "description": "Error; the body describes it.",
            "content": {JSON: {"schema": schema}},
        }
    operation: dict[str, Any] = {"operationId": route.operation, "summary": route.summary, "responses": responses}
    in_path: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in re.findall(r"<(?:\w+:)?(\w+)>", route.path)
    ]
    if parameters := [*in_path, *_query(route.query), *headers]:
        operation["parameters"] = parameters
    if route.body:
        operation["requestBody"] = {"required": True, "content": {JSON: {"schema": _reference(route.body)}}}
    if route.form is not None:
        operation["requestBody"] = {"required": True, "content": {"multipart/form-data": {"schema": _form(route.form)}}}
    return operation


def _interface(path: str) -> tuple[str, list[dict[str, Any]]]:
    """Return the schema of errors and the headers and other parameters of the interface that has ``path``."""
    if path.startswith("/v1/messages"):
        return "AnthropicError", [_ANTHROPIC_VERSION]
    if path in ("/chat/completions", "/models/chat/completions"):
        return "AzureError", [*_AZURE_PARAMETERS, _EXTRA_PARAMETERS]
    if path in ("/info", "/models/info"):
        return "AzureError", _AZURE_PARAMETERS
    return "Error", []


def _content(route: Route) -> Iterator[tuple[str, dict[str, Any]]]:
    for media_type in route.returns:
        if media_type == JSON:
            yield JSON, {"schema": _reference(route.schema) if route.schema else {"type": "object"}}
        elif media_type == "text/event-stream":
            yield media_type, {}
        else:
            binary = {"format": "binary"} if media_type == "application/octet-stream" else {}
            yield media_type, {"schema": {"type": "string", **binary}}


def _query(model: type[BaseModel] | None) -> Iterator[dict[str, Any]]:
    """Yield the query parameters that ``model`` validates."""
    for name, schema in _fields(model).items():
        if schema["type"] == "array":
            yield {"name": f"{name}[]", "in": "query", "schema": schema}
        elif schema["type"] != "object":
            yield {"name": name, "in": "query", "schema": schema}


def _form(model: type[BaseModel]) -> dict[str, Any]:
    """Return the schema of a form with a file and the fields that ``model`` validates, inner ones in brackets."""
    fields: dict[str, Any] = {"file": {"type": "string", "format": "binary"}}
    for name, schema in _fields(model).items():
        inner = schema.get("properties")
        fields |= {f"{name}[{key}]": value for key, value in inner.items()} if inner else {name: schema}
    required = [name for name, field in model.model_fields.items() if field.is_required()]
    return {"type": "object", "required": ["file", *required], "properties": fields}


def _fields(model: type[BaseModel] | None) -> dict[str, Any]:
    """Return the schemas of a model's fields by name. Neither queries nor forms have null."""
    if model is None:
        return {}
    whole = model.model_json_schema(ref_template=REFERENCE)
    fields = {}
    for name, field in whole["properties"].items():
        schema = next((one for one in field.get("anyOf", ()) if one.get("type") != "null"), field)
        if "$ref" in schema:
            schema = whole["$defs"][schema["$ref"].rpartition("/")[2]]
        fields[name] = schema
    return fields


def _reference(name: str) -> dict[str, str]:
    return {"$ref": REFERENCE.format(model=name)}


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

_ANTHROPIC_VERSION: dict[str, Any] = {
    "name": VERSION_HEADER,
    "in": "header",
    "schema": {"type": "string", "pattern": VERSION_PATTERN, "default": DEFAULT_VERSION},
}

_TYPED_OBJECT = {"type": "object", "required": ["type"], "properties": {"type": {"type": "string"}}}

_AZURE_PARAMETERS: list[dict[str, Any]] = [
    {
        "name": "api-version",
        "in": "query",
        "required": True,
        "schema": {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}(-preview)?$"},
    },
    {"name": azure.DEPLOYMENT_HEADER, "in": "header", "schema": {"type": "string"}},
]

_EXTRA_PARAMETERS: dict[str, Any] = {
    "name": azure.EXTRA_PARAMETERS_HEADER,
    "in": "header",
    "schema": {"type": "string", "enum": list(azure.ExtraParameters)},
}
