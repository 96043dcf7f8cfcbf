"""Upper limits on the length of strings (``maxLength``), enforced outside the grammar.

To count characters, a grammar needs a state for each of them, and XGrammar walks through the whole vocabulary for every
state or for every token. So the grammar leaves the length open, and the engine ends an answer whose string is too long,
as one that has reached its most tokens: ``length``.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from worker.grammar.reading import items_of, target_of

_SPECIAL = re.compile(r'["\\]')
_VALUE_STARTS = frozenset('{["-0123456789tfn')


class Bounded(msgspec.Struct, frozen=True, array_like=True):
    """A JSON value with limited strings. ``begin`` is the text before it; without one it begins the answer."""

    begin: str
    schema: str


def bounded_values(begins: Iterable[str], schema: str) -> tuple[Bounded, ...]:
    """What to watch where a value of ``schema`` may follow each of ``begins``; nothing if no string has a limit."""
    return tuple(Bounded(begin, schema) for begin in begins) if "maxLength" in schema else ()


class _Frame:
    """An object or array that has begun, and the schemas that it is held to."""

    def __init__(self, schemas: Sequence[Any], *, is_object: bool) -> None:
        self.schemas = schemas
        self.is_object = is_object
        self.index = 0


class _Reader:
    """Reads one JSON value, valid under its schema but for the lengths of strings."""

    def __init__(self, schema: str) -> None:
        self._document = msgspec.json.decode(schema)
        self._frames: list[_Frame] = []
        self._schemas: Sequence[Any] = [self._document]
        self._key: list[str] | None = None
        self._expects_key = False
        self._limit: int | None = None
        self._count: int | None = None
        """Characters of the string so far; None outside strings."""
        self._escape = ""
        self._begun = False
        self.ended = False

    @property
    def too_long(self) -> bool:
        """Whether the present string is longer than it may be."""
        return self._limit is not None and self._count is not None and self._count > self._limit

    def read(self, text: str, at: int) -> int:
        """Read ``text`` from ``at`` on, to the value's end or a string that is too long; return where that is.

        What turns out to be no JSON (a marker that the model quotes in its reasoning) ends, too.
        """
        try:
            return self._read(text, at)
        except (ValueError, msgspec.MsgspecError):
            self.ended = True
            return len(text)

    def _read(self, text: str, at: int) -> int:
        while at < len(text) and not self.ended and not self.too_long:
            if self._count is None:
                at += self._outside(text[at])
            elif self._key is None and not self._escape:
                end = _SPECIAL.search(text, at)
                plain = (end.start() if end else len(text)) - at
                self._count += plain
                at += plain
                if end and not self.too_long:
                    self._in_string(text[at])
                    at += 1
            else:
                self._in_string(text[at])
                at += 1
        return at

    def _in_string(self, character: str) -> None:
        assert self._count is not None
        if self._key is not None:
            self._key.append(character)
        if self._escape:
            self._escape += character
            if self._escape[1] == "u" and len(self._escape) < 6:
                return
            # The second half of a pair of surrogates is no character of its own.
            second_half = self._escape[1] == "u" and 0xDC00 <= _code_unit(self._escape) <= 0xDFFF
            self._count += 0 if second_half else 1
            self._escape = ""
        elif character == "\\":
            self._escape = character
        elif character == '"':
            self._count = None
            self.ended = not self._frames
        else:
            self._count += 1

    def _outside(self, character: str) -> int:
        """Read a character outside strings; return 0 if it is none of the value's."""
        if not self._begun and character not in _VALUE_STARTS:
            self.ended = True
            return 0
        self._begun = True
        match character:
            case '"':
                self._count = 0
                self._key = [character] if self._expects_key else None
                self._limit = None if self._expects_key else _limit(self._expanded(self._schemas))
                self._expects_key = False
            case "{" | "[":
                self._open(is_object=character == "{")
            case ":" if self._frames:
                key = msgspec.json.decode("".join(self._key or ['""']), type=str)
                self._schemas = _members(self._expanded(self._frames[-1].schemas), key)
            case "," if self._frames:
                self._next()
            case "}" | "]" if self._frames:
                self._frames.pop()
                self.ended = not self._frames
        return 1

    def _open(self, *, is_object: bool) -> None:
        frame = _Frame(self._schemas, is_object=is_object)
        self._frames.append(frame)
        self._expects_key = is_object
        if not is_object:
            self._schemas = _items(self._expanded(frame.schemas), 0)

    def _next(self) -> None:
        frame = self._frames[-1]
        frame.index += 1
        self._expects_key = frame.is_object
        if not frame.is_object:
            self._schemas = _items(self._expanded(frame.schemas), frame.index)

    def _expanded(self, schemas: Sequence[Any]) -> list[Mapping[str, Any]]:
        """The schemas that may say something about a value, with those that they refer to and combine."""
        found: list[Mapping[str, Any]] = []
        waiting = list(schemas)
        seen: set[int] = set()
        while waiting:
            schema = waiting.pop()
            if not isinstance(schema, Mapping) or id(schema) in seen:
                continue
            seen.add(id(schema))
            found.append(schema)
            if "$ref" in schema:
                waiting.append(target_of(self._document, schema["$ref"], ""))
            for keyword in ("allOf", "anyOf", "oneOf"):
                waiting += items_of(schema, keyword, "")
        return found


class LengthWatch:
    """Reads an answer as it comes, and notices the first string that is longer than its schema allows.

    Where several schemas are possible (``anyOf``), the strictest counts.
    """

    def __init__(self, values: Sequence[Bounded]) -> None:
        self._values = [value for value in values if value.begin]
        self._longest = max((len(value.begin) for value in self._values), default=0)
        self._tail = ""
        self._reader = next((_Reader(value.schema) for value in values if not value.begin), None)

    def exceeds(self, text: str) -> bool:
        """Read the next part; return whether a string has become too long."""
        at = 0
        while at < len(text):
            if self._reader is None:
                at = self._seek(text, at)
                continue
            at = self._reader.read(text, at)
            if self._reader.too_long:
                return True
            if self._reader.ended:
                self._reader = None
        return False

    def _seek(self, text: str, at: int) -> int:
        """Look for the next value from ``at`` on; return where it begins, or the end of ``text``."""
        if not self._values:
            return len(text)
        for index in range(at, len(text)):
            self._tail = (self._tail + text[index])[-self._longest :]
            value = next((value for value in self._values if self._tail.endswith(value.begin)), None)
            if value is not None:
                self._tail = ""
                self._reader = _Reader(value.schema)
                return index + 1
        return len(text)


def _code_unit(escape: str) -> int:
    return int(escape.removeprefix("\\u"), 16)


def _limit(schemas: Iterable[Mapping[str, Any]]) -> int | None:
    return min((int(schema["maxLength"]) for schema in schemas if "maxLength" in schema), default=None)


def _members(schemas: Iterable[Mapping[str, Any]], key: str) -> list[Any]:
    """The schemas of an object's member."""
    members = []
    for schema in schemas:
        properties = schema.get("properties", {})
        members.append(properties[key] if key in properties else schema.get("additionalProperties"))
    return members


def _items(schemas: Iterable[Mapping[str, Any]], index: int) -> list[Any]:
    """The schemas of an array's item."""
    items = []
    for schema in schemas:
        rest = schema.get("items")
        first = schema.get("prefixItems", ())
        if isinstance(rest, list):
            first, rest = rest, schema.get("additionalItems")
        items.append(first[index] if index < len(first) else rest)
    return items
