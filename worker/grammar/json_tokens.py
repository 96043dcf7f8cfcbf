"""What a token adds to JSON text: the characters of a string, its end, and further values."""

import re

NEVER = 2**31 - 1
"""More characters than a string has."""
_IN_STRING = re.compile(rb'(?:\\.?|[^"\\])*', re.DOTALL)
_INSIDE_STRING = rb'(?:\\.|[^"\\])*'
_CHARACTER = re.compile(rb"\\u.{0,4}|\\.?|[^\\\x80-\xbf]", re.DOTALL)


def characters_in(piece: bytes) -> int:
    """Return the number of characters that a token adds to the JSON string that it continues, up to a closing quote.

    Never too low: an escape is one character, even if it is incomplete or the second half of a surrogate pair.
    """
    if piece.isascii() and b'"' not in piece and b"\\" not in piece:
        return len(piece)
    found = _IN_STRING.match(piece)
    return len(_CHARACTER.findall(found[0])) if found else 0


_CLOSED = re.compile(_INSIDE_STRING + rb'"', re.DOTALL)
_CLOSED_AGAIN = re.compile(_INSIDE_STRING + rb'"[^"]*"' + _INSIDE_STRING + rb'"', re.DOTALL)


def closing_lengths(piece: bytes) -> tuple[int, int, int]:
    """Return the number of characters that a token adds to a JSON string before it closes it; a high one if it doesn't.

    The token begins outside of the string, in it, or in it after a backslash. -1: it closes a further string, too.
    """
    if b'"' not in piece:
        return NEVER, NEVER, NEVER
    before, _, rest = piece.partition(b'"')
    outside = _closing_length(rest)
    return (
        outside if outside == NEVER or _SIGNS.isdisjoint(before) else -1,
        _closing_length(piece),
        _closing_length(b"\\" + piece),
    )


def _closing_length(piece: bytes) -> int:
    if _CLOSED_AGAIN.match(piece):
        return -1
    return characters_in(piece) if _CLOSED.match(piece) else NEVER


_NEXT = rb'(?:[^",{\[]|"(?:[^"\\]|\\.)*")*[,{\[]'
_OUTSIDE = re.compile(_NEXT, re.DOTALL)
_INSIDE = re.compile(_INSIDE_STRING + rb'"' + _NEXT, re.DOTALL)


def goes_on(piece: bytes, *, in_string: bool) -> bool:
    """Return whether a token begins a further JSON value. ``in_string``: it begins inside of a string."""
    return not _SIGNS.isdisjoint(piece) and bool((_INSIDE if in_string else _OUTSIDE).match(piece))


_SIGNS = frozenset(b",{[")
