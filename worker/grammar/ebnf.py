"""Text of XGrammar's EBNF: literals, character classes, repetitions, and a set of rules.

Syntax: https://xgrammar.mlc.ai/docs/using_xgrammar/ebnf_guided_generation.html
"""

from collections.abc import Iterable, Sequence

from worker.grammar.escapes import chunks

LAST_CHARACTER = 0x10FFFF
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}

Ranges = tuple[tuple[int, int], ...]
"""Code points, as pairs of the first and the last one; in order and apart."""


def literal(text: str) -> str:
    """An expression for exactly ``text``; several literals where XGrammar would misread one."""
    quoted = ["".join(_NAMED.get(character) or _printable(character) for character in part) for part in chunks(text)]
    return " ".join(f'"{part}"' for part in quoted) or '""'


def character_class(ranges: Ranges) -> str:
    """An expression for one character out of ``ranges``, which must not be empty."""
    parts = (_code(first) if first == last else f"{_code(first)}-{_code(last)}" for first, last in ranges)
    return f"[{''.join(parts)}]"


def sequence(parts: Iterable[str]) -> str:
    """An expression for one part after the other."""
    return " ".join(part for part in parts if part != '""') or '""'


def either(options: Sequence[str]) -> str:
    """An expression for any one of ``options``."""
    distinct = list(dict.fromkeys(options))
    return distinct[0] if len(distinct) == 1 else f"({' | '.join(distinct)})"


def repeated(part: str, least: int, most: int | None) -> str:
    """An expression for ``part`` from ``least`` to ``most`` times; without a ``most``, any number of times."""
    if (least, most) == (1, 1):
        return part
    if most == 0:
        return '""'
    quantifier = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((least, most))
    if quantifier is None:
        quantifier = f"{{{least},{'' if most is None else most}}}"
    return f"({part}){quantifier}"


class Rules:
    """Named rules. Two with the same body are one."""

    def __init__(self) -> None:
        self._bodies: dict[str, str] = {}
        self._names: dict[str, str] = {}

    def reserve(self) -> str:
        """A name for a rule whose body comes later, because it may mention itself."""
        name = f"r{len(self._bodies)}"
        self._bodies[name] = ""
        return name

    def fill(self, name: str, body: str) -> None:
        """Give a reserved name its body."""
        self._bodies[name] = body

    def define(self, body: str) -> str:
        """Return the name of the rule with this body."""
        if body not in self._names:
            self._names[body] = self.reserve()
            self.fill(self._names[body], body)
        return self._names[body]

    def text(self, root: str) -> str:
        """The grammar that begins with the expression ``root``."""
        lines = [f"root ::= {root}", *(f"{name} ::= {body}" for name, body in self._bodies.items())]
        return "\n".join(lines) + "\n"


def united(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """``ranges`` in order, those that touch joined."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined)


def without(ranges: Ranges, taken: Ranges) -> Ranges:
    """What of ``ranges`` is not in ``taken``."""
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
