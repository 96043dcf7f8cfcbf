"""Whether the texts that a grammar makes for one schema never fit another, for ``oneOf``."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from shared.parsers.schema_types import hashable
from worker.grammar.schema.flat import KINDS, Flat, both, member_schemas
from worker.grammar.schema.strings import Strings

_MAX_DEPTH = 4
_NUMBERS = {"number", "integer"}

Flats = Callable[[Any, str], list[Flat]]


class Apart:
    """Compares flat schemas: those that texts are made for, and wide ones."""

    def __init__(self, flats: Flats, wide: Flats, strings: Strings) -> None:
        """``flats`` and ``wide`` return the flat schemas that allow fewer or more values than a schema at a path."""
        self._flats = flats
        self._wide = wide
        self._matches = strings.matches
        self._are_apart = strings.are_apart

    def made(self, made: Flat, other: Flat, path: str, *, final: bool = False, depth: int = 0) -> bool:
        """Whether no text that a grammar makes for ``made`` is valid under ``other``. False if that is not known.

        ``other`` allows all values of its schema, or more.
        ``final``: nothing is merged into ``made`` any more, so it has only the properties that it names.
        """
        if depth > _MAX_DEPTH:
            return False
        if made.enum is not None and other.enum is not None:
            return set(map(hashable, made.enum)).isdisjoint(map(hashable, other.enum))
        if made.enum is not None:
            return all(other.fits(value, self._matches) is False for value in made.enum)
        made = replace(made, type=made.kinds() or list(KINDS))
        if other.enum is not None:
            return all(made.fits(value, self._matches) is False for value in other.enum)
        kinds, others = ({*flat.type} if flat.type is not None else {*KINDS} for flat in (made, other))
        common = kinds & others | (_NUMBERS if kinds & _NUMBERS and others & _NUMBERS else set())
        return all(self._kind_apart(kind, made, other, path, final, depth) for kind in common)

    def _kind_apart(self, kind: str, made: Flat, other: Flat, path: str, final: bool, depth: int) -> bool:
        match kind:
            case "object":
                return self._objects_apart(made, other, path, final, depth)
            case "string" if made.pattern is not None and other.pattern is not None:
                return self._are_apart(made.pattern, other.pattern)
            case "array":
                return _beyond(made.min_items, other.max_items) or _beyond(other.min_items, made.max_items)
            case "number" | "integer":
                return _beyond(made.minimum, other.maximum) or _beyond(other.minimum, made.maximum)
        return False

    def missing(self, made: Flat, other: Flat) -> str | None:
        """Return a property that ``other`` requires and that an object of ``made`` never has, unless it is merged."""
        closed = made.properties is not None or made.pattern_properties is not None
        if (not closed if made.additional_properties is None else made.additional_properties) is not False:
            return None
        own = {*(made.required or ()), *(made.properties or ())}
        return next(
            (
                name
                for name in other.required or ()
                if name not in own
                and all(self._matches(pattern, name) is False for pattern in made.pattern_properties or ())
            ),
            None,
        )

    def _objects_apart(self, made: Flat, other: Flat, path: str, final: bool, depth: int) -> bool:
        if not set(made.required or ()).isdisjoint(other.absent or ()):
            return True
        if not set(made.absent or ()).isdisjoint(other.required or ()):
            return True
        if final and self.missing(made, other) is not None:
            return True
        return any(self._members_apart(made, other, name, path, final, depth) for name in made.required or ())

    def _members_apart(self, made: Flat, other: Flat, name: str, path: str, final: bool, depth: int) -> bool:
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


def _beyond(low: float | None, high: float | None) -> bool:
    """Whether a lower bound is above the upper bound of others."""
    return low is not None and high is not None and low > high
