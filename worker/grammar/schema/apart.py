"""Whether the texts that a grammar makes for one schema never fit another, for ``oneOf``."""

from collections.abc import Callable
from typing import Any

from shared.parsers.schema_types import hashable, kinds_of_value
from worker.grammar.schema.merging import Matches, Schema, both, member_schemas, same
from worker.grammar.schema.reading import KINDS, kinds_of

_MAX_DEPTH = 4
_MEMBERS = frozenset({"properties", "patternProperties"})

Flats = Callable[[Any, str], list[dict[str, Any]]]


class Apart:
    """Compares flat schemas: those that texts are made for, and wide ones."""

    def __init__(self, flats: Flats, wide: Flats, matches: Matches, are_apart: Callable[[str, str], bool]) -> None:
        """``flats`` and ``wide`` return the flat schemas that allow fewer or more values than a schema at a path."""
        self._flats = flats
        self._wide = wide
        self._matches = matches
        self._are_apart = are_apart

    def made(self, made: Schema, other: Schema, path: str, *, final: bool = False, depth: int = 0) -> bool:
        """Whether no text that a grammar makes for ``made`` is valid under ``other``. False if that is not known.

        ``other`` allows all values of its schema, or more.
        ``final``: nothing is merged into ``made`` any more, so it has only the properties that it names.
        """
        if depth > _MAX_DEPTH:
            return False
        if "enum" in made and "enum" in other:
            return set(map(hashable, made["enum"])).isdisjoint(map(hashable, other["enum"]))
        if "enum" in made:
            return all(self._is_out(value, other, path) for value in made["enum"])
        kinds = set(kinds_of(made, path) or KINDS)
        others = set(_allowed(other, path))
        if "enum" in other:
            others &= {kind for value in other["enum"] for kind in kinds_of_value(value)}
        if "integer" in kinds and "number" in others:
            kinds.add("number")
        if "number" in kinds and "integer" in others:
            kinds.add("integer")
        return all(self._kind_apart(kind, made, other, path, final, depth) for kind in kinds & others)

    def _kind_apart(self, kind: str, made: Schema, other: Schema, path: str, final: bool, depth: int) -> bool:
        match kind:
            case "object":
                return self._objects_apart(made, other, path, final, depth)
            case "string":
                first, second = made.get("pattern"), other.get("pattern")
                if isinstance(first, str) and isinstance(second, str) and self._are_apart(first, second):
                    return True
                return self._values_apart(made, other)
            case "array":
                return _beyond(made, other, "minItems", "maxItems") or _beyond(other, made, "minItems", "maxItems")
            case "number" | "integer":
                return _beyond(made, other, "minimum", "maximum") or _beyond(other, made, "minimum", "maximum")
        return False

    def _values_apart(self, made: Schema, other: Schema) -> bool:
        """Whether the values of ``other`` don't match the pattern of ``made``, or are excluded."""
        values = [value for value in other.get("enum", ()) if isinstance(value, str)]
        pattern = made.get("pattern")
        return bool("enum" in other) and all(
            any(same(value, gone) for gone in made.get("excluded", ()))
            or (isinstance(pattern, str) and self._matches(pattern, value) is False)
            for value in values
        )

    def missing(self, made: Schema, other: Schema) -> str | None:
        """Return a property that ``other`` requires and that an object of ``made`` never has, unless it is merged."""
        if made.get("additionalProperties", not _MEMBERS & set(made)) is not False:
            return None
        patterns = made.get("patternProperties", {})
        return next(
            (
                name
                for name in other.get("required", ())
                if name not in made.get("required", ())
                and name not in made.get("properties", {})
                and all(self._matches(pattern, name) is False for pattern in patterns)
            ),
            None,
        )

    def _objects_apart(self, made: Schema, other: Schema, path: str, final: bool, depth: int) -> bool:
        if "enum" in other:
            return False
        required = made.get("required", ())
        if any(name in other.get("absent", ()) for name in required):
            return True
        if any(name in made.get("absent", ()) for name in other.get("required", ())):
            return True
        if final and self.missing(made, other) is not None:
            return True
        return any(self._members_apart(made, other, name, path, final, depth) for name in required)

    def _members_apart(self, made: Schema, other: Schema, name: str, path: str, final: bool, depth: int) -> bool:
        """Whether the values of a member that ``made`` always has are none of those that ``other`` allows."""
        first = both(member_schemas(made, name, self._matches))
        for second in member_schemas(other, name, self._matches):
            if second is False:
                return True
            if first is True or second is True or depth >= _MAX_DEPTH:
                continue
            if all(
                self.made(one, another, path, final=final, depth=depth + 1)
                for one in self._flats(first, path)
                for another in self._wide(second, path)
            ):
                return True
        return False

    def _is_out(self, value: Any, other: Schema, path: str) -> bool:
        """Whether ``value`` is surely not valid under ``other``."""
        if any(same(value, gone) for gone in other.get("excluded", ())):
            return True
        if not kinds_of_value(value) & set(_allowed(other, path)):
            return True
        if isinstance(value, dict):
            return any(name not in value for name in other.get("required", ()))
        pattern = other.get("pattern")
        return isinstance(value, str) and isinstance(pattern, str) and self._matches(pattern, value) is False


def _allowed(schema: Schema, path: str) -> list[str]:
    """Return the types that ``schema`` allows: a keyword without ``type`` allows all other types."""
    return kinds_of(schema, path) if "type" in schema else list(KINDS)


def _beyond(first: Schema, second: Schema, least: str, most: str) -> bool:
    """Whether the values of ``first`` are greater than those of ``second``."""
    low, high = first.get(least), second.get(most)
    return isinstance(low, int | float) and isinstance(high, int | float) and low > high
