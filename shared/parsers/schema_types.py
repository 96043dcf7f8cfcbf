"""The types of values that a JSON Schema allows, for values that a model writes as bare text.

The grammar of calls and their parser agree by this: text is bare where the schema allows a string.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial, reduce
from typing import Any, TypeVar
from urllib.parse import unquote

import msgspec

_Found = TypeVar("_Found")

ANY_TYPE = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})
_KEYWORDS = {
    "object": {"properties", "required", "additionalProperties", "patternProperties"},
    "array": {"items", "prefixItems", "minItems", "maxItems"},
    "string": {"minLength", "maxLength", "pattern", "format"},
}
_MAX_DEPTH = 64
"""Maximum number of nested schemas and references that are followed."""
ITEM = "item"
"""Stands for the items of an array."""
Options = dict[bytes, Any]
"""Allowed values by their JSON text."""


class SchemaTypes:
    """Finds the types and the enumerated values of the schemas in one document. Takes time linear in its size."""

    def __init__(self, document: Any) -> None:
        """``document`` is the decoded schema, the target of references."""
        self._document = document
        self._types: dict[str, frozenset[str]] = {}
        self._options: dict[str, Options | None] = {}

    def types(self, schema: Any, depth: int = 0) -> frozenset[str]:
        """Return the types that ``schema``, at ``depth``, may allow: :data:`ANY_TYPE` unless it says otherwise."""
        if not isinstance(schema, dict) or depth > _MAX_DEPTH:
            return ANY_TYPE
        find = partial(self.types, depth=depth + 1)
        found = [
            *self._referenced(schema, self._types, find, ANY_TYPE),
            *(find(part) for part in _listed(schema, "allOf")),
            *(
                frozenset().union(*map(find, _listed(schema, keyword)))
                for keyword in ("anyOf", "oneOf")
                if _listed(schema, keyword)
            ),
        ]
        values = _enumerated(schema)
        if values is not None:
            found.append(frozenset().union(*map(kinds_of_value, values)))
        elif declared := _declared(schema):
            found.append(declared)
        return reduce(frozenset.intersection, found, ANY_TYPE) or ANY_TYPE

    def options(self, schema: Any, depth: int = 0) -> Options | None:
        """Return the values that ``schema``, at ``depth``, enumerates; None if it allows others."""
        if not isinstance(schema, dict) or depth > _MAX_DEPTH:
            return None
        find = partial(self.options, depth=depth + 1)
        values = _enumerated(schema)
        if values is not None:
            return {msgspec.json.encode(value): value for value in values}
        for found in (
            *self._referenced(schema, self._options, find, None),
            *(find(part) for part in _listed(schema, "allOf")),
            *(_either(map(find, _listed(schema, keyword))) for keyword in ("anyOf", "oneOf")),
        ):
            if found is not None:
                return found
        return {b"null": None} if schema.get("type") == "null" else None

    def part(self, schema: Any, key: str, depth: int = 0) -> Any:
        """Return the schema of the member ``key`` of an object, or of the items of an array for :data:`ITEM`.

        It is that of the first alternative that has it; an empty schema if none has.
        """
        if not isinstance(schema, dict) or depth > _MAX_DEPTH:
            return {}
        properties = schema.get("properties")
        if isinstance(properties, dict) and key in properties:
            return properties[key]
        if key == ITEM and "items" in schema:
            return schema["items"]
        parts = [part for keyword in ("allOf", "anyOf", "oneOf") for part in _listed(schema, keyword)]
        if isinstance(reference := schema.get("$ref"), str):
            with suppress(LookupError):
                parts.append(target_of(self._document, reference))
        found = (self.part(part, key, depth + 1) for part in parts)
        return next((part for part in found if part != {}), schema.get("additionalProperties", {}))

    def _referenced(
        self, schema: dict[str, Any], known: dict[str, _Found], find: Callable[[Any], _Found], default: _Found
    ) -> list[_Found]:
        """Return what ``find`` returns for the target of a reference, if there is one; ``default`` within itself."""
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return []
        if reference not in known:
            known[reference] = default
            with suppress(LookupError):
                known[reference] = find(target_of(self._document, reference))
        return [known[reference]]


def target_of(document: Any, reference: str) -> Any:
    """Return the target in ``document`` of a reference such as ``#/$defs/a``. Raises :class:`LookupError` if it has
    none."""
    target = document
    for part in reference.split("/")[1:]:
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(target, list) and key.isdecimal():
            target = target[int(key)]
        elif isinstance(target, dict):
            target = target[key]
        else:
            raise LookupError(reference)
    return target


def hashable(value: Any) -> Any:
    """Return a value that equals that of another JSON value if both are equal in JSON: ``true`` does not equal 1."""
    match value:
        case dict():
            return frozenset((name, hashable(part)) for name, part in value.items())
        case list():
            return tuple(hashable(part) for part in value)
        case bool():
            return ("", value)
    return value


def _either(choices: Iterable[Options | None]) -> Options | None:
    result: Options = {}
    for options in choices:
        if options is None:
            return None
        result |= options
    return result or None


def kinds_of_value(value: object) -> frozenset[str]:
    """Return the JSON Schema types of a decoded JSON value."""
    match value:
        case None:
            return frozenset({"null"})
        case bool():
            return frozenset({"boolean"})
        case int() | float():
            return frozenset({"integer", "number"}) if value % 1 == 0 else frozenset({"number"})
        case list():
            return frozenset({"array"})
        case dict():
            return frozenset({"object"})
    return frozenset({"string"})


def _enumerated(schema: dict[str, Any]) -> list[Any] | None:
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    return values if isinstance(values, list) and values else None


def _declared(schema: dict[str, Any]) -> frozenset[str]:
    declared = schema.get("type")
    names: Iterable[Any] = [declared] if isinstance(declared, str) else declared if isinstance(declared, list) else ()
    types = frozenset(name for name in names if isinstance(name, str)) & ANY_TYPE
    if not types:
        types = frozenset(kind for kind, keywords in _KEYWORDS.items() if keywords & schema.keys())
    return types | {"integer"} if "number" in types else types


def _listed(schema: dict[str, Any], keyword: str) -> list[Any]:
    value = schema.get(keyword)
    return value if isinstance(value, list) else []
