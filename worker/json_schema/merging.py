"""Intersection of schemas, for ``allOf`` and for keywords next to ``$ref``, ``anyOf`` and ``oneOf``."""

from collections.abc import Callable, Mapping
from typing import Any

from worker.json_schema.keywords import ASSERTIONS, UNSUPPORTED, SchemaError, UnsupportedKeyword

Schema = Mapping[str, Any]


def merged(first: Schema, second: Schema, path: str) -> dict[str, Any]:
    """Return a schema for the values that both schemas allow.

    Raises :class:`UnsupportedKeyword` if both have a keyword whose values can't be combined, and :class:`SchemaError`
    if such a value has the wrong type.
    """
    result = dict(first)
    for keyword, value in second.items():
        if keyword not in result or result[keyword] == value:
            result[keyword] = value
        elif keyword in _JOINS:
            try:
                result[keyword] = _JOINS[keyword](result[keyword], value)
            except (TypeError, AttributeError) as error:
                raise SchemaError(f"{path}/{keyword}", "its value has the wrong type") from error
        elif keyword in ASSERTIONS or keyword in UNSUPPORTED:
            raise UnsupportedKeyword(
                path, f"two schemas that must both hold have different values of '{keyword}'; write them as one schema"
            )
    _check_closed(first, second, path)
    return result


def same(first: Any, second: Any) -> bool:
    """Whether two JSON values are equal. Unlike in Python, ``true`` does not equal 1."""
    return isinstance(first, bool) == isinstance(second, bool) and bool(first == second)


def _check_closed(first: Schema, second: Schema, path: str) -> None:
    """Raise :class:`UnsupportedKeyword` if one schema's ``additionalProperties`` restricts properties of the other."""
    for closed, other in ((first, second), (second, first)):
        beyond = _names(other) - _names(closed)
        if beyond and "additionalProperties" in closed and closed["additionalProperties"] is not True:
            raise UnsupportedKeyword(
                f"{path}/additionalProperties",
                f"it does not allow '{min(beyond)}' of another schema that must hold too; write them as one schema",
            )


def _names(schema: Schema) -> set[str]:
    properties = schema.get("properties")
    return set(properties) if isinstance(properties, Mapping) else set()


def _types(first: Any, second: Any) -> list[str]:
    first_types, second_types = ([value] if isinstance(value, str) else list(value) for value in (first, second))
    common = [kind for kind in first_types if kind in second_types]
    if "integer" not in common and {"integer", "number"} <= {*first_types, *second_types}:
        common.append("integer")
    return common


def _properties(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    both = {name: {"allOf": [first[name], second[name]]} for name in first if name in second}
    return {**first, **second, **both}


_JOINS: Mapping[str, Callable[[Any, Any], Any]] = {
    "type": _types,
    "properties": _properties,
    "required": lambda first, second: [*first, *(name for name in second if name not in first)],
    "enum": lambda first, second: [value for value in first if any(same(value, other) for other in second)],
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
