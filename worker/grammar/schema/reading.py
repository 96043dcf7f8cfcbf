"""Typed access to the keywords of a JSON Schema."""

from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import msgspec

from shared.parsers import schema_types
from worker.grammar.schema import keywords
from worker.grammar.schema.keywords import NoValue, SchemaError, UnsupportedKeyword
from worker.grammar.schema.merging import Schema

KINDS = ("object", "array", "string", "number", "integer", "boolean", "null")
_GROUPS = (
    ("object", keywords.OBJECT),
    ("array", keywords.ARRAY),
    ("string", keywords.STRING),
    ("number", keywords.NUMBER),
)


def kinds_of(schema: Schema, path: str) -> list[str]:
    """Return the types that the schema declares, or else those that its keywords apply to.

    Raises :class:`SchemaError` for an unknown type.
    """
    if "type" not in schema:
        return [kind for kind, about in _GROUPS if about & set(schema)]
    named = schema["type"]
    kinds = [named] if isinstance(named, str) else named
    if not isinstance(kinds, list) or not kinds:
        raise SchemaError(f"{path}/type", "expected the name of a type, or a list of names")
    for kind in kinds:
        if kind not in KINDS:
            raise SchemaError(f"{path}/type", f"there is no type {msgspec.json.encode(kind).decode()}")
    return kinds


def items_of(schema: Schema, keyword: str, path: str) -> list[Any]:
    """Return the list at ``keyword``, empty if it is absent. Raises :class:`SchemaError` if it is not a list."""
    value = schema.get(keyword, [])
    if not isinstance(value, list):
        raise SchemaError(f"{path}/{keyword}", "expected a list")
    return value


def bounds_of(schema: Schema, least: str, most: str, path: str) -> tuple[int, int | None]:
    """Return the minimum (default 0) and maximum (default None) count from the keywords ``least`` and ``most``.

    Raises :class:`SchemaError` if they are not counts or contradict each other.
    """
    for keyword in (least, most):
        value = schema.get(keyword, 0)
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or value % 1:
            raise SchemaError(f"{path}/{keyword}", "expected an integer that is not negative")
    low, high = int(schema.get(least, 0)), (int(schema[most]) if most in schema else None)
    if high is not None and high < low:
        raise NoValue(f"{path}/{most}", f"it is less than '{least}'")
    return low, high


def limit_of(
    schema: Schema, inclusive: str, exclusive: str, path: str, tighter: Callable[[Iterable[Decimal]], Decimal]
) -> tuple[Decimal | None, bool]:
    """Return a bound of a number range, or None, and whether the bound is exclusive."""
    bounds: dict[str, Decimal] = {}
    for keyword in (inclusive, exclusive):
        value = schema.get(keyword)
        if value is None or (isinstance(value, bool) and keyword == exclusive):  # a flag up to draft 4
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise SchemaError(f"{path}/{keyword}", "expected a number")
        bounds[keyword] = Decimal(str(value))
    if not bounds:
        return None, False
    end = tighter(bounds.values())
    return end, bounds.get(exclusive) == end or schema.get(exclusive) is True


def target_of(document: Any, reference: Any, path: str) -> Any:
    """Return the target in ``document`` of a reference at ``path``. Raises :class:`SchemaError`."""
    where = f"{path}/$ref"
    if not isinstance(reference, str):
        raise SchemaError(where, "expected a text")
    if reference != "#" and not reference.startswith("#/"):
        raise UnsupportedKeyword(where, f"'{reference}' is no reference into the schema itself: '#/...' is supported")
    try:
        return schema_types.target_of(document, reference)
    except LookupError:
        raise SchemaError(where, f"the schema has nothing at '{reference}'") from None


def escaped(name: str) -> str:
    """Return a key escaped for a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")
