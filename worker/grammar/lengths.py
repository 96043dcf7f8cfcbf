"""Enforcement of ``maxLength``, long ``minLength`` and the upper limits of regular expressions outside the grammar.

A grammar needs one state per character to count characters, and XGrammar scans the whole vocabulary for every state or
for every token. So grammars do not limit the length. Instead, an engine with access to logits masks all tokens for
which a string has no room, or which would close it too early. A string that has another length all the same ends its
job with the finish reason ``length``, as if it had reached its token limit.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

import msgspec

from shared.parsers.schema_types import hashable, target_of
from worker.engine.protocol import LengthLimits
from worker.grammar.json_tokens import NEVER, JsonTokens

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

_SPECIAL = re.compile(r'["\\]')
_VALUE_STARTS = frozenset('{["-0123456789tfn')
_LOOP = 1024
"""Characters that are repeated in a loop. A row of 300 zeros, or of 50 equal labels in objects, is none."""
_PROBE = 32
"""Characters at the end of a text. Their distance from where they occurred before is the length of a repetition."""


GRAMMAR_MINIMUM = 4
"""Up to this ``minLength``, grammars count the characters. Each takes 8 ms to compile for 49,000 tokens."""


_UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, msgspec.MsgspecError)
"""Errors of text that is not JSON, and of schemas that are none."""


@dataclass
class _Frame:
    """An open object or array and the schemas that apply to it. ``index`` is that of the current item, ``start`` the
    index of its text."""

    schemas: Sequence[Mapping[str, Any]]
    is_object: bool
    names: set[str] = field(default_factory=set)
    repeats: bool = False
    """Whether a name has occurred again."""
    index: int = 0
    items: set[Any] | None = None
    """The items so far, if no two may be equal."""
    start: int = 0


class _JsonReader:
    """Incremental reader of one JSON value that is valid under its schema, except for the lengths of strings."""

    def __init__(self, schema: str, *, minimums: bool = False) -> None:
        """``minimums`` is as in :class:`LengthLimits`."""
        self._document = msgspec.json.decode(schema)
        self._minimums = minimums
        self._frames: list[_Frame] = []
        self._key: list[str] | None = None
        self._expects_key = False
        self._limit: int | None = None
        self._minimum = 0
        self._count: int | None = None
        """Number of characters in the current string so far; None outside strings."""
        self._escape = ""
        self._started = False
        self._text = "" if '"uniqueItems"' in schema else None
        """The text so far, if items are compared."""
        self._repeats = self._too_short = False
        self._tail: str | None = "" if self._document == {} else None
        """The end of the text, in JSON mode."""
        self._loops = False
        self.ended = False
        self._schemas: Sequence[Mapping[str, Any]] = ()
        """Those of the value that may begin here."""
        try:
            self._schemas = self._expanded([self._document])
        except _UNREADABLE:
            self.ended = True

    @property
    def violated(self) -> bool:
        """Whether the current string exceeds its limit, one ended too early, or an item occurs twice that must not."""
        too_long = self._limit is not None and self._count is not None and self._count > self._limit
        return self._repeats or self._too_short or too_long

    @property
    def room(self) -> int | None:
        """Number of characters that the current string may still have; None without a limit."""
        if self._count is None or (self._limit is None and not self._loops):
            return None
        return max(0, (self._limit or 0) - self._count)

    @property
    def lacking(self) -> int | None:
        """Number of characters without which the current string, or one that begins here, must not end; None if no
        string has a minimum."""
        if not self._minimums:
            return None
        if self._count is None:
            return self._minimum_of(self._schemas)
        # Up to four characters may belong to an escape that has begun.
        return self._minimum - self._count + 4 * (len(self._escape) > 1) if self._count < self._minimum else 0

    @property
    def in_string(self) -> bool:
        """Whether the text so far ends in a string."""
        return self._count is not None

    @property
    def after_backslash(self) -> bool:
        """Whether the next character is escaped."""
        return self._escape == "\\"

    @property
    def ends(self) -> bool:
        """Whether no further value may begin here: a model that repeats itself goes on repeating."""
        return self._loops or (self._tail is not None and bool(self._frames) and self._frames[-1].repeats)

    def read(self, text: str, at: int) -> int:
        """Read ``text`` from ``at`` to the end of the value or of the allowed string; return that index.

        Text that turns out not to be JSON also ends the value: the model may quote a marker in its reasoning.
        """
        if self._tail is not None:
            self._tail = (self._tail + text[at:])[-4 * _LOOP :]
            self._loops = self._loops or _is_loop(self._tail)
        try:
            return self._read(text, at)
        except _UNREADABLE:
            self.ended = True
            return len(text)

    def _read(self, text: str, at: int) -> int:
        while at < len(text) and not self.ended and not self.violated:
            start = at
            if self._count is None:
                at += self._outside(text[at])
            elif self._key is None and not self._escape:
                end = _SPECIAL.search(text, at)
                plain = (end.start() if end else len(text)) - at
                self._count += plain
                at += plain
                if end and not self.violated:
                    self._in_string(text[at])
                    at += 1
            else:
                self._in_string(text[at])
                at += 1
            if self._text is not None:
                self._text += text[start:at]
        return at

    def _in_string(self, character: str) -> None:
        assert self._count is not None
        if self._key is not None:
            self._key.append(character)
        if self._escape:
            self._escape += character
            if self._escape[1] == "u" and len(self._escape) < 6:
                return
            # The second half of a surrogate pair is not a separate character.
            second_half = self._escape[1] == "u" and 0xDC00 <= int(self._escape.removeprefix("\\u"), 16) <= 0xDFFF
            self._count += 0 if second_half else 1
            self._escape = ""
        elif character == "\\":
            self._escape = character
        elif character == '"':
            self._too_short = self._count < self._minimum
            self._count = None
            self.ended = not self._frames
        else:
            self._count += 1

    def _outside(self, character: str) -> int:
        """Read a character outside strings; return the number of characters consumed, 0 if it can't start a value."""
        if not self._started and character not in _VALUE_STARTS:
            self.ended = True
            return 0
        self._started = True
        match character:
            case '"':
                self._count = 0
                self._key = [character] if self._expects_key else None
                self._limit = min((int(one["maxLength"]) for one in self._schemas if "maxLength" in one), default=None)
                self._minimum = self._minimum_of(self._schemas)
                self._schemas = ()
                self._expects_key = False
            case "{" | "[":
                self._open(is_object=character == "{")
            case ":" if self._frames:
                key = msgspec.json.decode("".join(self._key or ['""']), type=str)
                frame = self._frames[-1]
                frame.repeats = frame.repeats or key in frame.names
                frame.names.add(key)
                self._schemas = self._expanded(_members(frame.schemas, key))
            case "," if self._frames:
                self._end_item()
                self._frames[-1].index += 1
                self._expect_item()
            case "}" | "]" if self._frames:
                self._end_item()
                self._frames.pop()
                self.ended = not self._frames
        return 1

    def _open(self, *, is_object: bool) -> None:
        frame = _Frame(self._schemas, is_object)
        self._frames.append(frame)
        self._expect_item()
        if self._text is not None and not is_object and any(one.get("uniqueItems") is True for one in frame.schemas):
            frame.items, frame.start = set(), len(self._text) + 1

    def _end_item(self) -> None:
        frame = self._frames[-1]
        if frame.items is None or self._text is None:
            return
        text = self._text[frame.start :]
        frame.start = len(self._text) + 1
        if text.strip():
            item = hashable(msgspec.json.decode(text))
            self._repeats = item in frame.items
            frame.items.add(item)

    def _expect_item(self) -> None:
        frame = self._frames[-1]
        self._expects_key = frame.is_object
        self._schemas = () if frame.is_object else self._expanded(_items(frame.schemas, frame.index))

    def _minimum_of(self, schemas: Iterable[Mapping[str, Any]]) -> int:
        """Return the length of a string that the grammar does not ensure."""
        named = (schema.get("minLength") for schema in schemas)
        minimum = max((length for length in named if isinstance(length, int | float)), default=0)
        return int(min(minimum, NEVER)) if self._minimums and minimum > GRAMMAR_MINIMUM else 0

    def _expanded(self, schemas: Iterable[Any]) -> list[Mapping[str, Any]]:
        """Return ``schemas`` and all schemas that they reference or combine."""
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
                waiting.append(target_of(self._document, schema["$ref"]))
            for keyword in ("allOf", "anyOf", "oneOf"):
                waiting += schema.get(keyword, ())
            waiting += [schema.get(keyword) for keyword in ("if", "then", "else")]
            for keyword in ("dependentSchemas", "dependencies"):
                waiting += schema.get(keyword, {}).values()
        return found


def _is_loop(text: str) -> bool:
    """Return whether ``text`` ends in at least three repetitions, and at least ``_LOOP`` repeated characters."""
    period = len(text) - _PROBE - text.rfind(text[-_PROBE:], 0, -1)
    repeated = max(_LOOP, 2 * period)
    return len(text) >= repeated + period and text[-repeated:] == text[-repeated - period : -period]


class _TextReader:
    """Counter of the characters of plain text."""

    ended = False
    room = None
    lacking = None
    in_string = after_backslash = ends = False

    def __init__(self, max_length: int) -> None:
        self._remaining = max_length

    @property
    def violated(self) -> bool:
        """Whether there were more than the allowed characters."""
        return self._remaining < 0

    def read(self, text: str, at: int) -> int:
        """Count the characters of ``text`` from ``at`` on; return its length."""
        self._remaining -= len(text) - at
        return len(text)


def _reader(value: LengthLimits) -> "_JsonReader | _TextReader":
    if value.max_length is not None:
        return _TextReader(value.max_length)
    return _JsonReader(value.schema, minimums=value.minimums)


class LengthChecker:
    """Detects in streamed text the first string that violates the limits of its schema, or text that is too long.

    If several schemas may apply (``anyOf``), the lowest ``maxLength`` and the highest ``minLength`` count.
    """

    def __init__(self, values: Sequence[LengthLimits], tokens: JsonTokens | None = None) -> None:
        """``tokens`` are needed for :meth:`excluded`."""
        self._tokens = tokens
        self._values = [value for value in values if value.begin]
        self._longest = max((len(value.begin) for value in self._values), default=0)
        self._tail = ""
        self.reader = next((_reader(value) for value in values if not value.begin), None)
        """The reader of the current value, if there is one."""

    def violates(self, text: str) -> bool:
        """Read the next chunk; return whether a string violates its limits."""
        at = 0
        while at < len(text):
            if self.reader is None:
                at = self._seek(text, at)
                continue
            at = self.reader.read(text, at)
            if self.reader.violated:
                return True
            if self.reader.ended:
                self.reader = None
        return False

    def excluded(self, unread: int) -> "NDArray[numpy.bool_] | None":
        """Return of each token whether it must not be next; None without a limit. ``unread`` characters have begun."""
        reader, tokens = self.reader, self._tokens
        if reader is None or tokens is None:
            return None
        masks = []
        if reader.ends and not unread:
            masks.append(tokens.continuing[reader.in_string])
        if reader.room is not None:
            masks.append(tokens.string_lengths > max(0, reader.room - unread))
        if (lacking := reader.lacking) is not None:
            masks.append(tokens.closing_lengths[reader.in_string + reader.after_backslash] < lacking)
        return reduce(or_, masks) if masks else None

    def _seek(self, text: str, at: int) -> int:
        """Search for the next value from ``at`` on; return the index where it starts, or the length of ``text``."""
        if not self._values:
            return len(text)
        for index in range(at, len(text)):
            self._tail = (self._tail + text[index])[-self._longest :]
            value = next((value for value in self._values if self._tail.endswith(value.begin)), None)
            if value is not None:
                self._tail = ""
                self.reader = _reader(value)
                return index + 1
        return len(text)


def _members(schemas: Iterable[Mapping[str, Any]], key: str) -> Iterator[Any]:
    """Yield the schemas of an object's member ``key``."""
    for schema in schemas:
        yield from schema.get("patternProperties", {}).values()
        rest = schema.get("additionalProperties", schema.get("unevaluatedProperties"))
        yield schema.get("properties", {}).get(key, rest)


def _items(schemas: Iterable[Mapping[str, Any]], index: int) -> Iterator[Any]:
    """Yield the schemas of an array's item at ``index``."""
    for schema in schemas:
        first, rest = schema.get("prefixItems", ()), schema.get("items")
        if isinstance(rest, list):
            first, rest = rest, schema.get("additionalItems")
        if rest is None:
            rest = schema.get("unevaluatedItems")
        yield from (first[index] if index < len(first) else rest, schema.get("contains"))
