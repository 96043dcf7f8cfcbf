"""What a token adds to JSON text: the characters of a string, its end, and further values."""

import re
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from worker.engine.text import Vocabulary

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

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


class JsonTokens:
    """What each token of a vocabulary adds to JSON text, as tables from which masks are made."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._piece = vocabulary.piece
        self._size = len(vocabulary)

    def parts(self) -> Iterator[bool]:
        """Make the tables before a step needs them. Each part takes up to a quarter of a second."""
        for table in ("string_lengths", "closing_lengths", "continuing"):
            getattr(self, table)
            yield False

    @cached_property
    def string_lengths(self) -> "NDArray[numpy.int32]":
        """The number of characters that each token adds to a JSON string."""
        import numpy  # takes half of the start of a process that needs neither of these

        return numpy.array([characters_in(self._piece(token)) for token in range(self._size)], numpy.int32)

    @cached_property
    def closing_lengths(self) -> "NDArray[numpy.int32]":
        """Three rows: the number of characters that each token adds to a JSON string before it closes it, if it begins
        outside of the string, in it, and in it after a backslash (:func:`closing_lengths`).
        """
        import numpy

        lengths = [closing_lengths(self._piece(token)) for token in range(self._size)]
        return numpy.array(lengths, numpy.int32).reshape(-1, 3).T.copy()

    @cached_property
    def continuing(self) -> "tuple[NDArray[numpy.bool_], NDArray[numpy.bool_]]":
        """Whether each token begins a further JSON value, if it begins outside of a string, and inside of one."""
        import numpy

        pieces = [self._piece(token) for token in range(self._size)]
        outside, inside = ([goes_on(piece, in_string=where) for piece in pieces] for where in (False, True))
        return numpy.array(outside), numpy.array(inside)
