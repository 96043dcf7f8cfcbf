"""Writes syntax trees of regular expressions as expressions of grammars, of text or of the contents of JSON strings.

In JSON strings, matched characters are escaped: a quotation mark in the text is ``\\"`` in the output.
"""

from collections.abc import Callable

import msgspec

from worker.grammar.ebnf import (
    LAST_CHARACTER,
    Ranges,
    character_class,
    either,
    literal,
    repeated,
    sequence,
    united,
    without,
)
from worker.grammar.regex import (
    ANYTHING,
    Characters,
    Choice,
    Node,
    PatternError,
    Repeat,
    Sequence,
    is_void,
    lengths,
)

_ESCAPED = {0x22: '"', 0x5C: "\\", 0x08: "b", 0x0C: "f", 0x0A: "n", 0x0D: "r", 0x09: "t"}
_ESCAPED_IN_JSON: Ranges = ((0x00, 0x1F), (0x22, 0x22), (0x5C, 0x5C), (0xD800, 0xDFFF))
_NOT_IN_TEXT: Ranges = ((0x00, 0x00), (0xD800, 0xDFFF))
_COUNTED = ((16, 128), (128, 8), (LAST_CHARACTER + 1, 4))
"""Pairs of a class size in characters, and the maximum number of its repetitions that a grammar counts."""


class Expression(msgspec.Struct, frozen=True):
    """An expression ``text`` whose matches have ``min_length`` to ``max_length`` characters (None: unlimited).

    If it is one character that is either ``plain`` or an ``escape``, these are the two expressions.
    ``class_size`` is the size of the largest class in it.
    """

    text: str
    min_length: int
    max_length: int | None
    plain: str = ""
    escape: str = ""
    class_size: int = 1


class RegexWriter:
    """Writes syntax trees as expressions. ``anything`` stands for the text next to an unanchored match."""

    def __init__(self, characters: Callable[[Ranges], Expression], anything: Expression) -> None:
        """``characters`` writes one character of a class: :func:`text_character` or :func:`json_character`."""
        self._characters = characters
        self._anything = anything

    def written(self, node: Node) -> Expression:
        """Return the expression for ``node``. Raises :class:`PatternError`."""
        if node is ANYTHING:
            return self._anything
        match node:
            case Characters(sure):
                return self._characters(sure)
            case Sequence(parts):
                return _concatenation([self._grouped(part) for part in parts])
            case Choice(options):
                left = [option for option in options if not is_void(option)]
                if not left:
                    raise PatternError("a look-ahead leaves no text")
                return _alternation([self.written(option) for option in left])
            case Repeat(part, minimum, maximum):
                atom = self._grouped(part)
                shortest, longest = lengths(node)
                counted = repeated(atom.text, minimum, maximum)
                text = _unlimited(atom, minimum) if atom.escape and maximum is None else counted
                return Expression(text, shortest, longest, class_size=atom.class_size)

    def _grouped(self, node: Node) -> Expression:
        inner = self.written(node)
        if isinstance(node, Choice):
            return Expression(f"({inner.text})", inner.min_length, inner.max_length, class_size=inner.class_size)
        return inner


def text_character(ranges: Ranges) -> Expression:
    """Return the expression for one character of ``ranges``."""
    allowed = without(ranges, _NOT_IN_TEXT)
    if not allowed:
        raise PatternError("a class has no character that a text can have")
    return Expression(_plain(allowed), 1, 1, class_size=_size(allowed))


def _plain(ranges: Ranges) -> str:
    first, last = ranges[0]
    return literal(chr(first)) if len(ranges) == 1 and first == last else character_class(ranges)


def json_character(ranges: Ranges) -> Expression:
    """Return the expression for one character of ``ranges``, escaped as in JSON."""
    options = []
    if plain := without(ranges, _ESCAPED_IN_JSON):
        options.append(_plain(plain))
    escaped = [sign for point, sign in _ESCAPED.items() if any(first <= point <= last for first, last in ranges)]
    if escaped:
        options.append(sequence([literal("\\"), character_class(united((ord(sign), ord(sign)) for sign in escaped))]))
    if not options:
        raise PatternError("a class has no character that JSON can write")
    plain_text, escape = options if len(options) > 1 else ("", "")
    return Expression(either(options), 1, 1, plain_text, escape, _size(ranges))


def _unlimited(atom: Expression, minimum: int) -> str:
    """Return ``minimum`` or more characters in a form in which XGrammar scans few tokens for each of them.

    A rule for one character would make it scan its whole vocabulary (:mod:`worker.grammar.json_text`). So the first
    ``minimum - 1`` characters are not escaped.
    """
    escapes = f"({atom.escape} {atom.plain}*)*"
    if not minimum:
        return f"{atom.plain}* {escapes}"
    first = either([f"{atom.plain} {atom.plain}*", f"{atom.escape} {atom.plain}*"])
    return sequence([*[atom.plain] * (minimum - 1), first, escapes])


def max_counted(atom: Node) -> int:
    """Return how many repetitions of ``atom`` a grammar can count. Each of a large class takes 10 ms to compile."""
    largest = RegexWriter(json_character, Expression('""', 0, 0)).written(atom).class_size
    return next(maximum for size, maximum in _COUNTED if largest <= size)


def _size(ranges: Ranges) -> int:
    return sum(last - first + 1 for first, last in ranges)


def _concatenation(parts: list[Expression]) -> Expression:
    longest: int | None = 0
    for part in parts:
        longest = None if longest is None or part.max_length is None else longest + part.max_length
    largest = max((part.class_size for part in parts), default=1)
    return Expression(
        sequence(part.text for part in parts), sum(part.min_length for part in parts), longest, class_size=largest
    )


def _alternation(options: list[Expression]) -> Expression:
    longest: int | None = 0
    for option in options:
        longest = None if longest is None or option.max_length is None else max(longest, option.max_length)
    return Expression(
        either([option.text for option in options]),
        min(option.min_length for option in options),
        longest,
        class_size=max(option.class_size for option in options),
    )
