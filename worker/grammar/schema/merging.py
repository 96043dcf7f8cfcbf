"""Intersection of schemas, for ``allOf`` and for keywords next to ``$ref``, ``anyOf`` and ``oneOf``."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from shared.parsers.schema_types import hashable
from worker.grammar.schema.keywords import SchemaError, UnsupportedKeyword

Schema = Mapping[str, Any]

Matches = Callable[[str, str], bool | None]
"""Whether a pattern matches a name. None: dialects of regular expressions differ, or it takes too long to find out."""


def merged(first: Schema, second: Schema, path: str, matches: Matches) -> dict[str, Any]:
    """Return a schema for the values that both schemas allow.

    Raises :class:`UnsupportedKeyword` if both have a keyword whose values can't be combined, and :class:`SchemaError`
    if such a value has the wrong type.
    """
    result = dict(first)
    for keyword, value in second.items():
        if keyword not in result or same(result[keyword], value):
            result[keyword] = value
        elif keyword in _JOINS:
            try:
                result[keyword] = _JOINS[keyword](result[keyword], value)
            except (TypeError, AttributeError) as error:
                raise SchemaError(f"{path}/{keyword}", "its value has the wrong type") from error
        elif keyword not in _MEMBERS and keyword not in _ITEMS:
            raise UnsupportedKeyword(
                path, f"two schemas that must both hold have different values of '{keyword}'; write them as one schema"
            )
    try:
        if _MEMBERS & set(first) and _MEMBERS & set(second):
            result.update(_members(first, second, matches))
        if _ITEMS & set(first) and _ITEMS & set(second):
            result.update(_items(first, second))
    except (TypeError, AttributeError) as error:
        raise SchemaError(path, "a keyword of objects or arrays has a value of the wrong type") from error
    return result


def same(first: Any, second: Any) -> bool:
    """Whether two JSON values are equal. Unlike in Python, ``true`` does not equal 1."""
    waiting = [(first, second)]
    while waiting:
        one, other = waiting.pop()
        if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
            waiting += zip(one, other, strict=True)
        elif isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
            waiting += ((value, other[name]) for name, value in one.items())
        elif isinstance(one, list | dict) or isinstance(one, bool) != isinstance(other, bool) or one != other:
            return False
    return True


def both(schemas: list[Any]) -> Any:
    """Return a schema for the values that all ``schemas`` allow."""
    distinct: list[Any] = []
    for schema in schemas:
        if schema is not True and not any(same(schema, other) for other in distinct):
            distinct.append(schema)
    if any(schema is False for schema in schemas):
        return False
    return {"allOf": distinct} if len(distinct) > 1 else distinct[0] if distinct else True


def member_schemas(schema: Schema, name: str, matches: Matches, *, default: Any = True) -> list[Any]:
    """Return the schemas that the member ``name`` of an object must satisfy."""
    found = {pattern: matches(pattern, name) for pattern in schema.get("patternProperties", {})}
    parts = [schema["patternProperties"][pattern] for pattern in found if found[pattern] is not False]
    if name in schema.get("properties", {}):
        return [*parts, schema["properties"][name]]
    return parts if True in found.values() else [*parts, schema.get("additionalProperties", default)]


def _members(first: Schema, second: Schema, matches: Matches) -> dict[str, Any]:
    """Return the keywords of members that ``first`` and ``second`` allow.

    Grammars let a name match only one pattern, so patterns are combined with the additional properties of the other.
    """
    names = dict.fromkeys([*first.get("properties", {}), *second.get("properties", {})])
    result: dict[str, Any] = {}
    if names or "properties" in first or "properties" in second:
        result["properties"] = {
            name: both([*member_schemas(first, name, matches), *member_schemas(second, name, matches)])
            for name in names
        }
    patterns: dict[str, Any] = {}
    for one, other in ((first, second), (second, first)):
        for pattern, part in one.get("patternProperties", {}).items():
            theirs = other.get("patternProperties", {}).get(pattern, other.get("additionalProperties", True))
            patterns.setdefault(pattern, both([part, theirs]))
    if patterns:
        result["patternProperties"] = patterns
    others = [schema["additionalProperties"] for schema in (first, second) if "additionalProperties" in schema]
    if others:
        result["additionalProperties"] = both(others)
    return result


def _items(first: Schema, second: Schema) -> dict[str, Any]:
    result: dict[str, Any] = {}
    prefixes = [schema.get("prefixItems", []) for schema in (first, second)]
    rests = [schema.get("items", True) for schema in (first, second)]
    longest = max(map(len, prefixes))
    if longest:
        result["prefixItems"] = [
            both([prefix[at] if at < len(prefix) else rest for prefix, rest in zip(prefixes, rests, strict=True)])
            for at in range(longest)
        ]
    if "items" in first or "items" in second:
        result["items"] = both(rests)
    return result


def _types(first: Any, second: Any) -> list[str]:
    first_types, second_types = ([value] if isinstance(value, str) else list(value) for value in (first, second))
    common = [kind for kind in first_types if kind in second_types]
    if "integer" not in common and any(
        "integer" in one and "number" in other
        for one, other in ((first_types, second_types), (second_types, first_types))
    ):
        common.append("integer")
    return common


def _multiple(first: Any, second: Any) -> int:
    if isinstance(first, int) and isinstance(second, int) and first > 0 and second > 0:
        return math.lcm(first, second)
    raise UnsupportedKeyword("/multipleOf", "two different ones are supported only as integers")


def _joined(first: list[Any], second: list[Any]) -> list[Any]:
    known = set(map(hashable, first))
    return [*first, *(value for value in second if hashable(value) not in known)]


def _common(first: list[Any], second: list[Any]) -> list[Any]:
    known = set(map(hashable, second))
    return [value for value in first if hashable(value) in known]


_MEMBERS = frozenset({"properties", "patternProperties", "additionalProperties"})
_ITEMS = frozenset({"prefixItems", "items"})
_JOINS: Mapping[str, Callable[[Any, Any], Any]] = {
    "type": _types,
    "required": _joined,
    "absent": _joined,
    "checked": lambda first, second: {
        **first,
        **second,
        **{name: both([first[name], second[name]]) for name in first if name in second},
    },
    "excluded": _joined,
    "enum": _common,
    "propertyNames": lambda first, second: both([first, second]),
    "uniqueItems": lambda first, second: first or second,
    "multipleOf": _multiple,
    "minimum": max,
    "exclusiveMinimum": max,
    "maximum": min,
    "exclusiveMaximum": min,
    "minLength": max,
    "maxLength": min,
    "minItems": max,
    "maxItems": min,
    "minProperties": max,
    "maxProperties": min,
}
