"""Rewrites clients' EBNF grammars so that XGrammar reads them correctly (:mod:`worker.grammar.escapes`).

Negated classes become positive ones, because XGrammar's also match bytes that are not UTF-8.
"""

import re
from collections.abc import Iterator

from worker.grammar.alternatives import protect_alternatives
from worker.grammar.ebnf import LAST_CHARACTER, character_class, united, without
from worker.grammar.escapes import character_of, split

_EVERY = ((1, LAST_CHARACTER),)
"""A grammar has no NUL."""
_NAMED = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "a": "\a", "b": "\b", "e": "\x1b", "0": "\0"}
_LITERAL = frozenset("'\"?\\-]^[")
"""Characters that a backslash escapes to themselves."""
_UNIT = re.compile(
    r"\\(?:x[0-9a-fA-F]+|x\{[0-9a-fA-F]+\}|u[0-9a-fA-F]{4}|u\{[0-9a-fA-F]+\}|U[0-9a-fA-F]{8}|.)|.", re.DOTALL
)
_EBNF_PART = re.compile(r'#[^\n]*|"(?:[^"\\\n]|\\.)*"|\[(?:[^\]\\\n]|\\.)*\]', re.DOTALL)


def readable_grammar(ebnf: str) -> str:
    """Return a grammar with its literals, classes and alternatives rewritten.

    Invalid parts stay as they are; XGrammar reports them.
    """
    return protect_alternatives(_EBNF_PART.sub(lambda part: _ebnf_part(part[0]), ebnf))


def _ebnf_part(part: str) -> str:
    if part.startswith("["):
        return _class(part)
    if part.startswith("#"):
        return part
    literals = ['"' + "".join(units) + '"' for units in split(_UNIT.findall(part[1:-1]))]
    return part if len(literals) <= 1 else f"({' '.join(literals)})"


def _class(text: str) -> str:
    negated = text.startswith("[^")
    ranges = []
    for element in _elements(_UNIT.findall(text[2 if negated else 1 : -1])):
        points = [point for unit in element if (point := _point(unit)) is not None]
        if len(points) < len(element) or points != sorted(points):
            return text
        ranges.append((points[0], points[-1]))
    matched = without(_EVERY, united(ranges)) if negated else united(ranges)
    return character_class(matched) if matched else text


def _point(unit: str) -> int | None:
    """Return the code point of a character of a class; None for an escape that XGrammar does not know."""
    character = character_of(unit)
    if character != "\\" or len(unit) == 1:
        return ord(character)
    if unit[1] in _LITERAL:
        return ord(unit[1])
    return ord(_NAMED[unit[1]]) if unit[1] in _NAMED else None


def _elements(units: list[str]) -> Iterator[tuple[str, ...]]:
    """Yield the characters of a class as 1-tuples, and its ranges as pairs."""
    at = 0
    while at < len(units):
        if at + 2 < len(units) and units[at + 1] == "-":
            yield units[at], units[at + 2]
            at += 3
        else:
            yield (units[at],)
            at += 1
