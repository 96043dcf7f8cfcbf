"""Validation of strict schemas: the subset of JSON Schema in OpenAI's structured outputs, with its messages.

Source: the "Supported schemas" section of OpenAI's guide to structured outputs. These rules
apply to schemas with ``strict: true``. Workers refuse what the engine can't enforce.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from shared.protocol.errors import ProblemKind, refuse

MAX_PROPERTIES = 5000
MAX_NESTING = 10

_FORBIDDEN = (
    "allOf",
    "oneOf",
    "not",
    "dependentRequired",
    "dependentSchemas",
    "if",
    "then",
    "else",
    "default",
    "patternProperties",
    "unevaluatedProperties",
    "propertyNames",
    "minProperties",
    "maxProperties",
    "contains",
    "minContains",
    "maxContains",
    "uniqueItems",
)

_Place = tuple[str, ...]


def root_error(schema: Mapping[str, Any]) -> str | None:
    """Return the error in the root of a function's parameters, strict or not, or None."""
    kind = schema.get("type", "object" if not schema else None)
    if kind == "object":
        return None
    return f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{_shown(kind)}\"'."


def check_parameters(name: str, parameters: Mapping[str, Any] | None, param: str, *, strict: bool) -> None:
    """Raise :class:`RequestRefused` unless the ``parameters`` of the function ``name`` are a schema, if it has any."""
    if parameters is None:
        return
    error = strict_error(parameters) if strict else root_error(parameters)
    if error is not None:
        message = f"Invalid schema for function '{name}': {error}"
        raise refuse(ProblemKind.INVALID, message, param=param, code="invalid_function_parameters")


def strict_error(schema: Mapping[str, Any]) -> str | None:
    """Return the first error in a strict ``schema`` with the OpenAI service's message, or None."""
    if "anyOf" in schema:
        return "schema must have type 'object' and not have 'anyOf' at the top level."
    error = root_error(schema) or ("schema must have a 'type' key." if not schema else None)
    if error is not None:
        return error
    properties = 0
    for place, nesting, inner in _schemas(schema, (), 1):
        error = _error(inner)
        if error is not None:
            return f"In context={place!r}, {error}"
        if nesting > MAX_NESTING:
            return f"In context={place!r}, more than {MAX_NESTING} levels of nesting."
        properties += len(_object(inner.get("properties")))
        if properties > MAX_PROPERTIES:
            return f"Expected at most {MAX_PROPERTIES} object properties in all."
    return None


def _error(schema: Mapping[str, Any]) -> str | None:
    for keyword in _FORBIDDEN:
        if keyword in schema:
            return f"'{keyword}' is not permitted."
    if not schema.keys() & {"type", "anyOf", "$ref", "enum", "const"}:
        return "schema must have a 'type' key."
    kinds = schema.get("type")
    if kinds == "object" or (isinstance(kinds, list) and "object" in kinds):
        return _object_error(schema)
    if kinds == "array" and not isinstance(schema.get("items"), dict):
        return "array schema missing items."
    return None


def _object_error(schema: Mapping[str, Any]) -> str | None:
    if schema.get("additionalProperties") is not False:
        return "'additionalProperties' is required to be supplied and to be false."
    properties, required = _object(schema.get("properties")), schema.get("required")
    listed = required if isinstance(required, list) else []
    # Items of other types are not hashable, and no keys either.
    names = {key for key in listed if isinstance(key, str)}
    for key in properties:
        if key not in names:
            return (
                "'required' is required to be supplied and to be an array including every key in properties. "
                f"Missing '{_shown(key)}'."
            )
    for key in listed:
        if not isinstance(key, str) or key not in properties:
            return f"'required' holds the key '{_shown(key)}', which is not in properties."
    return None


def _schemas(schema: Any, place: _Place, nesting: int) -> Iterator[tuple[_Place, int, Mapping[str, Any]]]:
    """Yield ``schema`` and all schemas inside it, each with its path and nesting depth.

    The depth of request bodies is limited, so recursion is safe.
    """
    if not isinstance(schema, dict):
        return
    yield place, nesting, schema
    for key, inner in _object(schema.get("properties")).items():
        yield from _schemas(inner, (*place, "properties", _shown(key)), nesting + 1)
    yield from _schemas(schema.get("items"), (*place, "items"), nesting + 1)
    branches = schema.get("anyOf")
    for index, inner in enumerate(branches if isinstance(branches, list) else ()):
        yield from _schemas(inner, (*place, "anyOf", str(index)), nesting)
    for definitions in ("$defs", "definitions"):
        for key, inner in _object(schema.get(definitions)).items():
            yield from _schemas(inner, (*place, definitions, _shown(key)), nesting)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _shown(value: Any) -> str:
    return str(value)[:64]
