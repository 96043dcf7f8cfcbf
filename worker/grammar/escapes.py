"""Rewrites grammars so that XGrammar reads them correctly.

XGrammar prints control characters and U+007F to U+00FF as ``\\xNN``, and then parses every following hexadecimal digit
as part of the escape: ``"ße"`` becomes U+0DFE. This happens whenever a grammar is compiled, however the character was
escaped. Separate literals and the elements of a class are printed separately, so this module splits and reorders them.
It also splits ranges (:mod:`worker.grammar.utf8`) and separates alternatives (:mod:`worker.grammar.alternatives`).
"""

import re
from collections.abc import Iterator

from worker.grammar.alternatives import kept_apart
from worker.grammar.utf8 import utf8_ranges

_LAST_ASCII = 0x7F
_HEXADECIMAL = frozenset("0123456789abcdefABCDEF")
_NAMED = frozenset("\a\b\t\n\v\f\r\x1b")
"""Control characters that XGrammar prints as a backslash and a letter."""
_UNIT = re.compile(
    r"\\(?:x[0-9a-fA-F]+|x\{[0-9a-fA-F]+\}|u[0-9a-fA-F]{4}|u\{[0-9a-fA-F]+\}|U[0-9a-fA-F]{8}|.)|.", re.DOTALL
)
_CODE = re.compile(r"\\[xuU]\{?([0-9a-fA-F]+)\}?")
_SHORTHAND = re.compile(r"\\[dDsSwW]")
_EBNF_PART = re.compile(r'#[^\n]*|"(?:[^"\\\n]|\\.)*"|\[(?:[^\]\\\n]|\\.)*\]', re.DOTALL)


class SpellingError(ValueError):
    """XGrammar would misread a text that can't be rewritten; the message names the part."""


def chunks(text: str) -> list[str]:
    """Split ``text`` into literals that XGrammar reads correctly: usually one, none if ``text`` is empty."""
    return ["".join(units) for units in _split(list(text))]


def is_readable(text: str) -> bool:
    """Whether XGrammar reads ``text`` correctly as one literal."""
    return len(chunks(text)) <= 1


def readable_grammar(ebnf: str) -> str:
    """Return a grammar with its literals, classes and alternatives rewritten. Raises :class:`SpellingError`."""
    return kept_apart(_EBNF_PART.sub(lambda part: _ebnf_part(part[0]), ebnf))


def _ebnf_part(part: str) -> str:
    if part.startswith("["):
        return _class(part)
    if part.startswith("#"):
        return part
    literals = ['"' + "".join(units) + '"' for units in _split(_UNIT.findall(part[1:-1]))]
    return part if len(literals) <= 1 else f"({' '.join(literals)})"


def _class(text: str) -> str:
    """Split the ranges of a class, and move what is printed as ``\\xNN`` to its end, where no digit can follow it."""
    negated = text.startswith("[^")
    given = list(_elements(_UNIT.findall(text[2 if negated else 1 : -1])))
    if negated and any(ord(_character(unit)) > 0x7F for element in given for unit in element):
        raise SpellingError(f"the class {text} excludes characters beyond ASCII, which is not supported")
    elements = [part for element in given for part in _exact(element)]
    if elements == given and not any(_is_swallowing(_character(element[-1])) for element in elements[:-1]):
        return text
    elements.sort(key=lambda element: _is_swallowing(_character(element[-1])))
    written = ("-".join("\\-" if unit == "-" else unit for unit in element) for element in elements)
    return f"[{'^' if negated else ''}{''.join(written)}]"


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


def _exact(element: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the parts of a character or range that XGrammar compiles correctly."""
    first, last = ord(_character(element[0])), ord(_character(element[-1]))
    if last <= _LAST_ASCII or first >= last or _SHORTHAND.fullmatch(element[0]):
        yield element
        return
    parts = list(utf8_ranges(max(first, _LAST_ASCII + 1), last))
    if first <= _LAST_ASCII:
        yield element[0], chr(_LAST_ASCII)
    elif parts == [(first, last)]:
        yield element
        return
    for start, end in parts:
        yield (chr(start), chr(end)) if start < end else (chr(start),)


def _split(units: list[str]) -> Iterator[list[str]]:
    start = 0
    for index in range(1, len(units)):
        if _is_swallowing(_character(units[index - 1])) and _character(units[index]) in _HEXADECIMAL:
            yield units[start:index]
            start = index
    if units:
        yield units[start:]


def _is_swallowing(character: str) -> bool:
    """Whether XGrammar prints ``character`` as ``\\xNN``, an escape without a fixed length."""
    return (character < " " and character not in _NAMED) or "\x7f" <= character <= "\xff"


def _character(unit: str) -> str:
    """Decode a character or numeric escape; any other escape is returned as a backslash."""
    if found := _CODE.fullmatch(unit):
        point = int(found[1], 16)
        return chr(point) if point <= 0x10FFFF else "\uffff"
    return unit if len(unit) == 1 else "\\"
