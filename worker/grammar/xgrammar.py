"""Texts, alternatives and ranges of characters that XGrammar misreads, written so that it does not.

- XGrammar prints control characters and U+007F to U+00FF as ``\\xNN``, and then parses every following hexadecimal
  digit as part of the escape: ``"ße"`` becomes U+0DFE. This happens whenever a grammar is compiled, however the
  character was escaped. Separate literals and the elements of a class are printed separately, so they are split and
  reordered.
- XGrammar merges the common prefixes and suffixes of alternatives, and merges too much where several overlap
  (https://github.com/mlc-ai/xgrammar/issues/618): ``"bbaa" | "bba" | "a" | "baa"`` also accepts ``baaa``. Alternatives
  have no common suffix if each ends with a different empty rule. Such rules take time to compile; listed texts become
  trees, in which no two alternatives begin alike (:meth:`worker.grammar.ebnf.Rules.one_of`).
- XGrammar mistranslates a range whose ends differ in more than the last bytes: ``[\\u0800-\\ud7ff]`` lacks U+D000 to
  U+D7FF, which are Korean syllables, and ``[ -\\u0800]`` allows overlong sequences. It is exact for a range that is the
  product of one byte range for each position.
"""

import re
from collections.abc import Iterator
from itertools import count

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


_PART = re.compile(r'#[^\n]*|"(?:[^"\\\n]|\\.)*"|\[(?:[^\]\\\n]|\\.)*\]|::=|\|', re.DOTALL)


def protect_alternatives(ebnf: str) -> str:
    """Return an equivalent of ``ebnf`` whose alternatives XGrammar does not merge."""
    numbers = count()
    rules = 0

    def rewritten(part: re.Match[str]) -> str:
        nonlocal numbers, rules
        if part[0] == "::=":
            numbers = count()
        if part[0] != "|":
            return part[0]
        number = next(numbers)
        rules = max(rules, number + 1)
        return f"end_{number} |"

    text = _PART.sub(rewritten, ebnf)
    return (
        "\n".join([text.rstrip("\n"), *(f'end_{number} ::= ""' for number in range(rules))]) + "\n" if rules else ebnf
    )


_SURROGATES = (0xD800, 0xDFFF)
_LAST_OF_LENGTH = (0x7F, 0x7FF, 0xFFFF)
"""The last characters with one, two and three bytes."""


def utf8_ranges(first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of the range of code points from ``first`` to ``last``, in order and without surrogates."""
    low, high = _SURROGATES
    if first <= high and last >= low:
        yield from _parts(first, low - 1)
        yield from _parts(high + 1, last)
    else:
        yield from _parts(first, last)


def _parts(first: int, last: int) -> Iterator[tuple[int, int]]:
    if first > last:
        return
    middle = _split(first, last)
    if middle is None:
        yield first, last
    else:
        yield from _parts(first, middle)
        yield from _parts(middle + 1, last)


def _split(first: int, last: int) -> int | None:
    """Return the last code point of the first part, or None if the range needs no split."""
    for end in _LAST_OF_LENGTH:
        if first <= end < last:
            return end
    if last <= _LAST_OF_LENGTH[0]:
        return None
    for bits in (6, 12, 18):
        continuation = (1 << bits) - 1
        if first | continuation != last | continuation:
            if first & continuation:
                return first | continuation
            if last & continuation != continuation:
                return (last & ~continuation) - 1
    return None
