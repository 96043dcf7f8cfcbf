"""JSON Schemas in requests. Workers refuse what their grammars can't enforce of a strict one."""

from collections.abc import Mapping
from typing import Any

from api.dialects.base.body import json_text
from shared.protocol.errors import ProblemKind, refuse
from shared.protocol.request import Constraint

_SHOWN = 64
"""Maximum number of characters of a client's text that an error quotes."""


def root_error(schema: Mapping[str, Any]) -> str | None:
    """Return the error in the root of a function's parameters, or None. They are an object if they name no type."""
    kind = schema.get("type", "object")
    if kind == "object":
        return None
    return f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{str(kind)[:_SHOWN]}\"'."


def check_parameters(name: str, parameters: Mapping[str, Any] | None, param: str) -> None:
    """Raise :class:`RequestRefused` unless the ``parameters`` of the function ``name`` are a schema, if it has any."""
    error = root_error(parameters or {})
    if error is not None:
        message = f"Invalid schema for function '{name}': {error}"
        raise refuse(ProblemKind.INVALID, message, param=param, code="invalid_function_parameters")


def json_constraint(schema: Mapping[str, Any] | None, param: str = "response_format") -> Constraint:
    """Return the constraint to JSON that follows ``schema``; without one, to any JSON object."""
    if schema is None:
        return Constraint(kind="json_object", param=param)
    return Constraint(kind="json_schema", value=json_text(schema), param=param)
