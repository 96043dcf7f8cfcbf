"""Builders for XGrammar's EBNF: literals, character classes, repetitions and rules.

Syntax: https://xgrammar.mlc.ai/docs/using_xgrammar/ebnf_guided_generation.html
"""

from collections.abc import Iterable, Sequence

from worker.grammar.alternatives import protect_alternatives
from worker.grammar.escapes import chunks, is_swallowing
from worker.grammar.utf8 import utf8_ranges

LAST_CHARACTER = 0x10FFFF
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}

Ranges = tuple[tuple[int, int], ...]
"""Sorted, disjoint ranges of code points, as inclusive pairs of first and last."""


def literal(text: str) -> str:
    """Return an expression that matches exactly ``text``, split into several literals if XGrammar would misread one."""
    quoted = ["".join(_NAMED.get(character) or _printable(character) for character in part) for part in chunks(text)]
    return " ".join(f'"{part}"' for part in quoted) or '""'


def character_class(ranges: Ranges) -> str:
    """Return an expression that matches one character of ``ranges``, which must not be empty."""
    exact = (part for first, last in ranges for part in utf8_ranges(first, last))
    # What XGrammar prints as \xNN comes last, where no digit can follow it; first of these, what begins with a digit.
    ordered = sorted(exact, key=lambda part: (is_swallowing(chr(part[1])), not 0x20 <= part[0] <= 0x7F))
    parts = (_code(first) if first == last else f"{_code(first)}-{_code(last)}" for first, last in ordered)
    return f"[{''.join(parts)}]"


def sequence(parts: Iterable[str]) -> str:
    """Return an expression that matches ``parts`` in order."""
    return " ".join(part for part in parts if part != '""') or '""'


def either(options: Sequence[str]) -> str:
    """Return an expression that matches any of ``options``."""
    distinct = list(dict.fromkeys(options))
    return distinct[0] if len(distinct) == 1 else f"({' | '.join(distinct)})"


def repeated(part: str, minimum: int, maximum: int | None) -> str:
    """Return an expression that matches ``part`` ``minimum`` to ``maximum`` times; ``maximum=None`` is unlimited."""
    if (minimum, maximum) == (1, 1):
        return part
    if maximum == 0:
        return '""'
    quantifier = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((minimum, maximum))
    if quantifier is None:
        quantifier = f"{{{minimum},{'' if maximum is None else maximum}}}"
    return f"({part}){quantifier}"


class Rules:
    """A set of named rules, deduplicated by body."""

    def __init__(self) -> None:
        self._bodies: dict[str, str] = {}
        self._names: dict[str, str] = {}

    def reserve(self) -> str:
        """Return the name of a new rule whose body is set later, for recursive rules."""
        name = f"r{len(self._bodies)}"
        self._bodies[name] = ""
        return name

    def fill(self, name: str, body: str) -> None:
        """Set the body of a reserved rule."""
        self._bodies[name] = body

    def define(self, body: str) -> str:
        """Return the name of the rule with this body, which is created if it does not exist."""
        if body not in self._names:
            self._names[body] = self.reserve()
            self.fill(self._names[body], body)
        return self._names[body]

    def text(self, root: str) -> str:
        """Return the text of the grammar whose root rule is the expression ``root``."""
        lines = [f"root ::= {root}", *(f"{name} ::= {body}" for name, body in self._bodies.items())]
        return protect_alternatives("\n".join(lines) + "\n")


def united(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return ``ranges`` sorted, with overlapping and adjacent ones merged."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined)


def without(ranges: Ranges, taken: Ranges) -> Ranges:
    """Return the difference of ``ranges`` and ``taken``."""
    rest: list[tuple[int, int]] = []
    for start, last in ranges:
        first = start
        for taken_first, taken_last in taken:
            if taken_last < first or taken_first > last:
                continue
            if taken_first > first:
                rest.append((first, taken_first - 1))
            first = taken_last + 1
        if first <= last:
            rest.append((first, last))
    return tuple(rest)


def _printable(character: str) -> str:
    return character if character.isprintable() and character.isascii() else _code(ord(character))


def _code(point: int) -> str:
    character = chr(point)
    if character.isascii() and character.isalnum():
        return character
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"
