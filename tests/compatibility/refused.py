"""Rows of the fields that a schema marks as unsupported, each with a value that is not neutral."""

import json
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, TypeAdapter

from api.dialects.base.unsupported import Only, Refused, marked_fields
from tests.compatibility.paths import of_type
from tests.compatibility.rows import Request


def refused_rows(model: type[BaseModel], written: tuple[Request, ...]) -> Iterator[Request]:
    """A row for each marked field of a request, except for what written rows already say is refused."""
    known = {row.paths[0] for row in written if not row.how}
    for field, mark in marked_fields(model).items():
        if field not in known:
            value = _sample(model, field, mark)
            inner = of_type(model.model_fields[field].annotation, field)
            yield Request(fields=" ".join(dict.fromkeys((field, *inner))), body={field: value}, when=_when(mark, value))


def _when(mark: Refused | Only, value: Any) -> str:
    """The values that are refused, if not all are."""
    if isinstance(mark, Only):
        return str(value)
    return f"not {' or '.join(map(json.dumps, mark.neutral))}" if mark.neutral else ""


def _sample(model: type[BaseModel], field: str, mark: Refused | Only) -> Any:
    """A value that the schema takes, and the service does not."""
    info = model.model_fields[field]
    schema = TypeAdapter(info.rebuild_annotation()).json_schema()
    accepted = mark.values if isinstance(mark, Only) else mark.neutral
    return next(
        value for value in _values(schema, schema.get("$defs", {})) if value is not None and value not in accepted
    )


def _values(schema: dict[str, Any], definitions: dict[str, Any]) -> Iterator[Any]:
    """Some values of a JSON schema; of an object, one that has every property."""
    if "$ref" in schema:
        yield from _values(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    for branch in schema.get("anyOf", schema.get("oneOf", ())):
        yield from _values(branch, definitions)
    yield from schema.get("enum", ())
    if "const" in schema:
        yield schema["const"]
    match schema.get("type"):
        case "object":
            properties = schema.get("properties", {"a": {"type": "string"}})
            yield {name: list(_values(inner, definitions))[-1] for name, inner in properties.items()}
        case "array":
            yield from ([value] for value in _values(schema["items"], definitions))
        case "string" if not {"enum", "const"} & schema.keys():
            yield "x"
        case "boolean":
            yield from (False, True)
        case "integer" | "number":
            yield 2
        case None if not schema:
            yield "x"
