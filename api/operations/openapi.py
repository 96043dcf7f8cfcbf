"""The OpenAPI document: every route, with the models by which the dialects validate request bodies."""

import json
import re
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from pydantic import BaseModel

from api.dialects.base.interface import EVENT_STREAM
from api.dialects.base.routes import JSON, Body, Route
from api.dialects.base.unsupported import supported_fields
from api.fleet.document import FleetDocument
from api.http.routes import PROBE_PATHS, routes_of
from shared.runtime.version import VERSION

REFERENCE = "#/components/schemas/{model}"
COMMON_ERRORS = (400, 421, 503)
"""Errors of every route but the probes: an invalid Host header, a disallowed host name, too many connections."""


def document(handlers: Iterable[type]) -> bytes:
    """Return the document of the routes of ``handlers`` as JSON."""
    routes = [route for handler in handlers for route, _ in routes_of(handler)]
    _, fleet = msgspec.json.schema_components([FleetDocument], ref_template="#/components/schemas/{name}")
    schemas: dict[str, Any] = {**fleet, **ChainMap(*(dict(route.dialect.error_schemas) for route in routes))}
    for body in {_name(route.body): route.body for route in routes if route.body is not None}.values():
        name = _name(body)
        schema = body.model.model_json_schema(ref_template=REFERENCE, mode="validation")
        schema = _without_conflicts(name, schema, schemas)
        schemas |= schema.pop("$defs", {})
        schemas[name] = _served(body, schema)
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Vinoqueue",
                "version": VERSION,
                "description": "OpenAI-compatible chat completions on OpenVINO, on any number of hosts.",
            },
            "paths": _paths(routes),
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


def _name(body: Body) -> str:
    return body.name or body.model.__name__


def _served(body: Body, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the ``schema`` of a body with what is served of it."""
    served = supported_fields(body.model) if body.served is None else body.served
    required = schema.get("required", ()) if body.required is None else body.required
    properties = {name: field for name, field in schema["properties"].items() if name in served}
    return schema | {
        "properties": {**properties, **body.properties},
        "required": [name for name in required if name in served],
    }


def _paths(routes: Iterable[Route]) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        path = re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route)
    return paths


def _operation(route: Route) -> dict[str, Any]:
    errors = [_reference(name) for name in route.dialect.error_schemas]
    common = (400,) if route.path in PROBE_PATHS else COMMON_ERRORS
    responses: dict[str, Any] = {"200": {"description": "OK", "content": dict(_content(route))}}
    for status in sorted({*route.errors, *common}):
        # Bodies of probes are others.
        schema = {} if status == 503 and errors == [_reference("Error")] else {"anyOf": errors}
        responses[str(status)] = {
            "description": "Error; the body describes it.",
            "content": {JSON: {"schema": schema}},
        }
    operation: dict[str, Any] = {"operationId": route.operation, "summary": route.summary, "responses": responses}
    in_path: list[Mapping[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in re.findall(r"<(?:\w+:)?(\w+)>", route.path)
    ]
    if parameters := [*in_path, *_query(route.query), *route.parameters]:
        operation["parameters"] = parameters
    if route.body is not None:
        operation["requestBody"] = {"required": True, "content": {JSON: {"schema": _reference(_name(route.body))}}}
    if route.form is not None:
        operation["requestBody"] = {"required": True, "content": {"multipart/form-data": {"schema": _form(route.form)}}}
    return operation


def _content(route: Route) -> Iterator[tuple[str, dict[str, Any]]]:
    for media_type in route.returns:
        if media_type == JSON:
            yield JSON, {"schema": _reference(route.schema) if route.schema else {"type": "object"}}
        elif media_type in (EVENT_STREAM, route.dialect.stream_type):
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
