"""Splits ranges of characters so that XGrammar compiles them to exactly their UTF-8 sequences.

XGrammar mistranslates a range whose ends differ in more than the last bytes: ``[\\u0800-\\ud7ff]`` lacks U+D000 to
U+D7FF, which are Korean syllables, and ``[ -\\u0800]`` allows overlong sequences. It is exact for a range that is the
product of one byte range for each position.
"""

from collections.abc import Iterator

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
