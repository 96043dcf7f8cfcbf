"""Compiler from regular expressions (ECMA-262, JSON Schema's ``pattern``) to grammars of text or of JSON strings.

XGrammar's own compiler mixes alternatives and misreads classes (:mod:`worker.grammar.xgrammar`). In JSON strings,
matched characters are escaped: a quotation mark in the text is ``\\"`` in the output. Classes that differ between
regular expression dialects (``\\w``, ``\\D`` ...) match only the characters that all dialects agree on.
"""

import re
from collections.abc import Callable

import msgspec

from worker.grammar.ebnf import (
    LAST_CHARACTER,
    Ranges,
    Rules,
    character_class,
    either,
    literal,
    repeated,
    sequence,
    united,
    without,
)

_MAX_DEPTH = 40
_ESCAPED = {0x22: '"', 0x5C: "\\", 0x08: "b", 0x0C: "f", 0x0A: "n", 0x0D: "r", 0x09: "t"}
_ESCAPED_IN_JSON: Ranges = ((0x00, 0x1F), (0x22, 0x22), (0x5C, 0x5C), (0xD800, 0xDFFF))
_NOT_IN_TEXT: Ranges = ((0x00, 0x00), (0xD800, 0xDFFF))
_EVERY: Ranges = ((0, LAST_CHARACTER),)
_DIGITS: Ranges = ((0x30, 0x39),)
_WORD: Ranges = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_SPACE: Ranges = ((0x09, 0x0D), (0x20, 0x20))
_ASCII: Ranges = ((0x00, 0x7F),)
_LINE_ENDS: Ranges = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))
_CLASSES = {
    "d": _DIGITS, "w": _WORD, "s": _SPACE,
    "D": without(_ASCII, _DIGITS), "W": without(_ASCII, _WORD), "S": without(_ASCII, _SPACE),
}  # fmt: skip
_CONTROLS = {"n": 0x0A, "r": 0x0D, "t": 0x09, "f": 0x0C, "v": 0x0B, "0": 0x00}
_QUANTIFIERS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_BRACES = re.compile(r"\{([0-9]{1,6})(,?)([0-9]{0,6})\}")
_COUNTED = ((16, 128), (128, 8), (LAST_CHARACTER + 1, 4))
"""Pairs of a class size in characters, and the maximum number of its repetitions that a grammar counts."""
_GROUP = re.compile(r"\((?:\?:|\?P?<[A-Za-z_][A-Za-z0-9_]*>|(?!\?))")
_HEXADECIMAL = re.compile(r"x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|u\{([0-9a-fA-F]{1,6})\}")


class PatternError(ValueError):
    """The regular expression is invalid or can't be compiled to a grammar; the message gives the reason."""


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


def string_content(pattern: str, anything: str) -> Expression:
    """Return the grammar of the contents of strings in which ``pattern`` matches, without the quotation marks.

    ``anything`` is the expression for the text before and after an unanchored match. Raises :class:`PatternError`.
    """
    return _PatternParser(pattern, anything, _in_json).parse()


def text_grammar(pattern: str) -> str:
    """Return the grammar of the texts that ``pattern`` matches as a whole. Raises :class:`PatternError`."""
    return Rules().text(_PatternParser(pattern, None, _in_text).parse().text)


def without_upper_limit(pattern: str, *, full_match: bool = False) -> tuple[str, int] | None:
    """Return an equivalent pattern without its upper limit, and the maximum length of a match that replaces the limit.

    There is one for a pattern of a whole text in which a single part has a variable length, ``{minimum,maximum}`` times
    something of fixed length. None if the pattern is another, or its repetitions are few enough for a grammar. With
    ``full_match``, the pattern needs no anchors.
    """
    try:
        return _PatternParser(pattern, None, _in_json).upper_limit(full_match=full_match)
    except PatternError:
        return None


class _PatternParser:
    def __init__(self, pattern: str, context: str | None, class_expression: "Callable[[Ranges], Expression]") -> None:
        """``context`` matches the text next to an unanchored match; ``None``: there is none."""
        self._pattern = pattern
        self._position = 0
        self._context = context
        self._class_expression = class_expression
        self._depth = 0

    def parse(self) -> Expression:
        options = [self._anchored()]
        while self._take("|"):
            options.append(self._anchored())
        if self._position < len(self._pattern):
            raise PatternError(f"')' at character {self._position} closes no group")
        return _alternation(options)

    def upper_limit(self, *, full_match: bool) -> tuple[str, int] | None:
        """Implement :func:`without_upper_limit`."""
        if not self._take("^") and not full_match:
            return None
        length = 0
        found: re.Match[str] | None = None
        while self._peek() not in ("", "|", ")", "$"):
            atom = self._atom()
            braces = _BRACES.match(self._pattern, self._position)
            part = self._quantified(atom)
            if part.min_length == part.max_length:
                length += part.min_length
            elif found or not braces or not braces[3] or atom.min_length != atom.max_length:
                return None
            else:
                found, maximum = braces, int(braces[3])
                length += maximum * atom.min_length
                if maximum <= _max_counted(atom):
                    return None
        if found is None or self._pattern[self._position :] not in (("$", "") if full_match else ("$",)):
            return None
        return f"{self._pattern[: found.start()]}{{{found[1]},}}{self._pattern[found.end() :]}", length

    def _anchored(self) -> Expression:
        """Read an alternative, with arbitrary text on each side that is not anchored."""
        anywhere = Expression('""', 0, 0) if self._context is None else Expression(self._context, 0, None)
        parts = [] if self._take("^") else [anywhere]
        parts.append(self._sequence())
        if not self._take("$"):
            parts.append(anywhere)
        elif self._peek() not in ("|", ""):
            raise PatternError("'$' is supported only at the end")
        return _concatenation(parts)

    def _alternatives(self) -> Expression:
        options = [self._sequence()]
        while self._take("|"):
            options.append(self._sequence())
        return _alternation(options)

    def _sequence(self) -> Expression:
        parts: list[Expression] = []
        while self._peek() not in ("", "|", ")", "$"):
            parts.append(self._quantified(self._atom()))
        if self._peek() == "$" and self._depth:
            raise PatternError("'$' is supported only at the end")
        return _concatenation(parts)

    def _atom(self) -> Expression:
        character = self._peek()
        if character == "(":
            return self._group()
        if character == "^":
            raise PatternError("'^' is supported only at the start")
        if character in "*+?":
            raise PatternError(f"nothing to repeat before '{character}'")
        if character == "{" and _BRACES.match(self._pattern, self._position):
            raise PatternError("nothing to repeat before '{'")
        self._position += 1
        if character == "[":
            return self._class_expression(self._class())
        if character == ".":
            return self._class_expression(without(_EVERY, _LINE_ENDS))
        if character == "\\":
            return self._class_expression(self._escape())
        return self._class_expression(_single(ord(character)))

    def _group(self) -> Expression:
        found = _GROUP.match(self._pattern, self._position)
        if found is None:
            raise PatternError("groups that look ahead or behind, and flags, are not supported")
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise PatternError(f"groups are nested more than {_MAX_DEPTH} deep")
        self._position = found.end()
        inner = self._alternatives()
        if not self._take(")"):
            raise PatternError("a group is not closed")
        self._depth -= 1
        return Expression(f"({inner.text})", inner.min_length, inner.max_length, class_size=inner.class_size)

    def _quantified(self, atom: Expression) -> Expression:
        bounds = _QUANTIFIERS.get(self._peek())
        if bounds is not None:
            self._position += 1
        elif found := _BRACES.match(self._pattern, self._position):
            self._position = found.end()
            minimum = int(found[1])
            bounds = minimum, (int(found[3]) if found[3] else None) if found[2] else minimum
        else:
            return atom
        self._take("?")  # laziness does not change what matches
        if self._peek() in ("*", "+"):
            raise PatternError("a repetition can't be repeated")
        minimum, maximum = bounds
        if maximum is not None and maximum < minimum:
            raise PatternError(f"a repetition from {minimum} to {maximum} times is empty")
        longest = 0 if maximum == 0 or atom.max_length == 0 else None
        if maximum and atom.max_length:
            longest = maximum * atom.max_length
        text = _unlimited(atom, minimum) if atom.escape and maximum is None else repeated(atom.text, minimum, maximum)
        return Expression(text, minimum * atom.min_length, longest, class_size=atom.class_size)

    def _class(self) -> Ranges:
        negated = self._take("^")
        ranges: list[tuple[int, int]] = []
        while not self._take("]"):
            first = self._class_atom()
            if self._peek() == "-" and self._peek(1) not in ("]", ""):
                self._position += 1
                last = self._class_atom()
                start, end = first[0][0], last[-1][1]
                if len(first) > 1 or len(last) > 1 or first[0][1] != start or last[0][0] != end or end < start:
                    raise PatternError("a class has a range without order")
                ranges.append((start, end))
            else:
                ranges += first
        return without(_EVERY, united(ranges)) if negated else united(ranges)

    def _class_atom(self) -> Ranges:
        character = self._peek()
        if not character:
            raise PatternError("a class is not closed")
        self._position += 1
        if character != "\\":
            return _single(ord(character))
        if self._take("b"):
            return _single(0x08)
        return self._escape()

    def _escape(self) -> Ranges:
        if found := _HEXADECIMAL.match(self._pattern, self._position):
            self._position = found.end()
            point = int(found[1] or found[2] or found[3], 16)
            if point > LAST_CHARACTER or 0xD800 <= point <= 0xDFFF:
                raise PatternError(f"'\\{found[0]}' is no character")
            return _single(point)
        character = self._peek()
        self._position += 1
        if character in _CLASSES and character:
            return _CLASSES[character]
        if character in _CONTROLS and character:
            return _single(_CONTROLS[character])
        if not character or character.isalnum():
            raise PatternError(f"the escape '\\{character}' is not supported")
        return _single(ord(character))

    def _peek(self, ahead: int = 0) -> str:
        return self._pattern[self._position + ahead : self._position + ahead + 1]

    def _take(self, text: str) -> bool:
        if self._pattern.startswith(text, self._position):
            self._position += len(text)
            return True
        return False


def _single(point: int) -> Ranges:
    return ((point, point),)


def _in_text(ranges: Ranges) -> Expression:
    """Return the expression for one character of ``ranges``."""
    allowed = without(ranges, _NOT_IN_TEXT)
    if not allowed:
        raise PatternError("a class has no character that a text can have")
    return Expression(_plain(allowed), 1, 1, class_size=_size(allowed))


def _plain(ranges: Ranges) -> str:
    first, last = ranges[0]
    return literal(chr(first)) if len(ranges) == 1 and first == last else character_class(ranges)


def _in_json(ranges: Ranges) -> Expression:
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


def _max_counted(atom: Expression) -> int:
    """Return how many repetitions of ``atom`` a grammar can count. Each of a large class takes 10 ms to compile."""
    return next(maximum for size, maximum in _COUNTED if atom.class_size <= size)


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
