"""Finds the texts that XGrammar misreads, and splits them.

XGrammar prints control characters and U+007F to U+00FF as ``\\xNN``, and then parses every following hexadecimal digit
as part of the escape: ``"ße"`` becomes U+0DFE. This happens whenever a grammar is compiled, however the character was
escaped. Separate literals and the elements of a class are printed separately, so they are split and reordered.
"""

import re
from collections.abc import Iterator

_HEXADECIMAL = frozenset("0123456789abcdefABCDEF")
_NAMED = frozenset("\a\b\t\n\v\f\r\x1b")
"""Control characters that XGrammar prints as a backslash and a letter."""
_CODE = re.compile(r"\\[xuU]\{?([0-9a-fA-F]+)\}?")


def chunks(text: str) -> list[str]:
    """Split ``text`` into literals that XGrammar reads correctly: usually one, none if ``text`` is empty."""
    return ["".join(units) for units in split(list(text))]


def is_readable(text: str) -> bool:
    """Whether XGrammar reads ``text`` correctly as one literal."""
    return len(chunks(text)) <= 1


def split(units: list[str]) -> Iterator[list[str]]:
    """Yield the literals into which the characters and escapes ``units`` of one must be split."""
    start = 0
    for index in range(1, len(units)):
        if is_swallowing(character_of(units[index - 1])) and character_of(units[index]) in _HEXADECIMAL:
            yield units[start:index]
            start = index
    if units:
        yield units[start:]


def is_swallowing(character: str) -> bool:
    """Whether XGrammar prints ``character`` as ``\\xNN``, an escape without a fixed length."""
    return (character < " " and character not in _NAMED) or "\x7f" <= character <= "\xff"


def character_of(unit: str) -> str:
    """Decode a character or numeric escape; any other escape is returned as a backslash."""
    if found := _CODE.fullmatch(unit):
        point = int(found[1], 16)
        return chr(point) if point <= 0x10FFFF else "\uffff"
    return unit if len(unit) == 1 else "\\"
