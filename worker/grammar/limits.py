"""Length limits of strings that the engine's process enforces (:mod:`worker.json_schema.lengths`), not the grammar.

These are ``maxLength`` and the upper limits of patterns such as ``^[a-z]{1,64}$``, which become a ``maxLength``.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from worker.grammar.patterns import without_upper_limit
from worker.json_schema.lengths import LengthLimits

_BY_NAME = frozenset({"properties", "$defs", "definitions"})
_LISTED = frozenset({"items", "prefixItems", "allOf", "anyOf", "oneOf"})
_SINGLE = frozenset({"items", "additionalItems", "additionalProperties"})
_MAX_DEPTH = 64
"""Nesting depth beyond which patterns stay as they are; deeper schemas are refused."""


def length_limits_of(begins: Iterable[str], schema: str) -> tuple[LengthLimits, ...]:
    """Return the values to check, one for each of ``begins``; empty if ``schema`` limits no string or list."""
    if "pattern" in schema:
        try:
            schema = msgspec.json.encode(with_length_limits(msgspec.json.decode(schema))).decode()
        except (msgspec.DecodeError, RecursionError):
            return ()  # It is refused when its grammar is made.
    watched = "maxLength" in schema or "uniqueItems" in schema
    return tuple(LengthLimits(begin, schema) for begin in begins) if watched else ()


def with_length_limits(schema: Any, depth: int = 0) -> Any:
    """Return an equivalent schema in which the upper limits of patterns are ``maxLength``."""
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return schema
    result = dict(schema)
    for keyword, value in schema.items():
        if keyword in _BY_NAME and isinstance(value, Mapping):
            result[keyword] = {name: with_length_limits(part, depth + 1) for name, part in value.items()}
        elif keyword in _LISTED and isinstance(value, list):
            result[keyword] = [with_length_limits(part, depth + 1) for part in value]
        elif keyword in _SINGLE:
            result[keyword] = with_length_limits(value, depth + 1)
    pattern, maximum = result.get("pattern"), result.get("maxLength")
    if isinstance(pattern, str) and isinstance(maximum, int | None) and (limited := without_upper_limit(pattern)):
        result["pattern"], limit = limited
        result["maxLength"] = limit if maximum is None else min(maximum, limit)
    return result
