"""Compiler from regular expressions (ECMA-262, JSON Schema's ``pattern``) to grammars of text or of JSON strings.

XGrammar's own compiler mixes alternatives and misreads classes (:mod:`worker.grammar.xgrammar`). In JSON strings,
matched characters are escaped: a quotation mark in the text is ``\\"`` in the output. Classes that differ between
regular expression dialects (``\\w``, ``\\D`` ...) match only the characters that all dialects agree on.
"""

import re
from collections.abc import Callable

from worker.grammar.ebnf import LAST_CHARACTER, Ranges, Rules, united, without
from worker.grammar.regex import (
    ANYTHING,
    EVERY,
    NOTHING,
    Alternation,
    Characters,
    Concatenation,
    Node,
    PatternError,
    Repeat,
    joined,
    lengths,
    not_ahead,
)
from worker.grammar.regex_writer import written

_MAX_DEPTH = 40
_DIGITS: Ranges = ((0x30, 0x39),)
_WORD: Ranges = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_LETTERS: Ranges = ((0x41, 0x5A), (0x61, 0x7A))
_SPACE: Ranges = ((0x09, 0x0D), (0x20, 0x20))
_ASCII: Ranges = ((0x00, 0x7F),)
_LINE_ENDS: Ranges = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))
_BEYOND_ASCII: Ranges = ((0x80, LAST_CHARACTER),)
_SPACES_BEYOND: Ranges = (
    (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F),
    (0x3000, 0x3000), (0xFEFF, 0xFEFF),
)  # fmt: skip
_CLASSES = {
    "d": Characters(_DIGITS, _DIGITS),
    "w": Characters(_WORD, _WORD),
    "s": Characters(_SPACE, united((*_SPACE, *_SPACES_BEYOND))),
    "D": Characters(without(_ASCII, _DIGITS), united((*without(_ASCII, _DIGITS), *_BEYOND_ASCII))),
    "W": Characters(without(_ASCII, _WORD), united((*without(_ASCII, _WORD), *_BEYOND_ASCII))),
    "S": Characters(without(_ASCII, _SPACE), united((*without(_ASCII, _SPACE), *_BEYOND_ASCII))),
}
_CONTROLS = {"n": 0x0A, "r": 0x0D, "t": 0x09, "f": 0x0C, "v": 0x0B, "0": 0x00}
_QUANTIFIERS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_BRACES = re.compile(r"\{([0-9]{1,6})(,?)([0-9]{0,6})\}")
_GROUP = re.compile(r"\((?:\?:|\?P?<[A-Za-z_][A-Za-z0-9_]*>|(?!\?))")
_HEXADECIMAL = re.compile(r"x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|u\{([0-9a-fA-F]{1,6})\}")


def regex_of(pattern: str) -> Node:
    """Return the syntax tree of the texts in which ``pattern`` matches. Raises :class:`PatternError`."""
    return _PatternParser(pattern, ANYTHING).parse()


def whole_regex_of(pattern: str, *, ignore_case: bool = False, dot_all: bool = False) -> Node:
    """Return the syntax tree of the texts that ``pattern`` matches as a whole. Raises :class:`PatternError`.

    ``ignore_case`` ignores the case of ASCII letters; ``dot_all``: ``.`` also matches line ends.
    """
    return _PatternParser(pattern, NOTHING, ignore_case=ignore_case, dot_all=dot_all).parse()


def text_grammar(node: Node) -> str:
    """Return the grammar of the texts that ``node`` matches. Raises :class:`PatternError`."""
    rules = Rules()
    return rules.text(written(rules, node, in_json=False))


_COUNTED = ((16, 128), (128, 8), (LAST_CHARACTER + 1, 4))
"""Pairs of a class size in characters, and the maximum number of its repetitions that a grammar counts. Each of a large
class takes 10 ms to compile."""


def without_upper_limit(node: Node) -> tuple[Node, int | None]:
    """Return ``node`` without its upper limit, and the maximum length of a match that replaces the limit.

    There is one if a single part has a variable length, ``{minimum,maximum}`` times something of fixed length. If there
    is none, or the repetitions are few enough for a grammar, ``node`` itself and None.
    """
    match node:
        case Alternation((option,)):
            parts = option.parts if isinstance(option, Concatenation) else (option,)
            match [one for one in parts if len(set(lengths(one))) > 1]:
                case [Repeat(part, minimum, int(maximum)) as limited] if len(set(lengths(part))) == 1:
                    size = _largest_class(part)
                    if maximum > next(count for most, count in _COUNTED if size <= most):
                        unlimited = Repeat(part, minimum, None)
                        return joined(unlimited if one is limited else one for one in parts), lengths(option)[1]
    return node, None


def _largest_class(node: Node) -> int:
    match node:
        case Characters(sure):
            return sum(last - first + 1 for first, last in sure)
        case Repeat(part):
            return _largest_class(part)
        case Concatenation(parts) | Alternation(parts):
            return max(map(_largest_class, parts), default=1)


class _PatternParser:
    def __init__(self, pattern: str, context: Node, *, ignore_case: bool = False, dot_all: bool = False) -> None:
        """``context`` is the text next to an unanchored match."""
        self._pattern = pattern
        self._position = 0
        self._context = context
        self._ignore_case = ignore_case
        self._any = Characters(EVERY if dot_all else without(EVERY, _LINE_ENDS), EVERY)
        self._depth = 0

    def parse(self) -> Node:
        options = self._options(self._anchored)
        if self._position < len(self._pattern):
            raise PatternError(f"')' at character {self._position} closes no group")
        return options

    def _anchored(self) -> Node:
        """Read an alternative, with arbitrary text on each side that is not anchored."""
        parts = [] if self._take("^") else [self._context]
        aheads = []
        while not parts and self._take("(?!"):
            aheads.append(self._ahead())
        parts.append(self._sequence())
        if not self._take("$"):
            parts.append(self._context)
        elif self._peek() not in ("|", ""):
            raise PatternError("'$' is supported only at the end")
        node = joined(parts)
        for ahead in aheads:
            node = not_ahead(node, ahead)
        return node

    def _ahead(self) -> Node:
        """Read a negative look-ahead behind its opening, at the start of the text."""
        options = self._options(self._excluded)
        if not self._take(")"):
            raise PatternError("a group is not closed")
        return options

    def _excluded(self) -> Node:
        option = self._sequence()
        if not self._take("$") and not lengths(option)[0]:
            raise PatternError("a negative look-ahead excludes every text")
        return option

    def _options(self, read: Callable[[], Node]) -> Alternation:
        options = [read()]
        while self._take("|"):
            options.append(read())
        return Alternation(tuple(options))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._peek() not in ("", "|", ")", "$"):
            parts.append(self._quantified(self._atom()))
        if self._peek() == "$" and self._depth:
            raise PatternError("'$' is supported only at the end")
        return joined(parts)

    def _atom(self) -> Node:
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
            return self._class()
        if character == ".":
            return self._any
        if character == "\\":
            return self._cased(self._escape())
        return self._cased(_single(ord(character)))

    def _group(self) -> Node:
        found = _GROUP.match(self._pattern, self._position)
        if found is None:
            raise PatternError("groups that look ahead or behind, and flags, are not supported")
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise PatternError(f"groups are nested more than {_MAX_DEPTH} deep")
        self._position = found.end()
        inner = self._options(self._sequence)
        if not self._take(")"):
            raise PatternError("a group is not closed")
        self._depth -= 1
        return inner

    def _quantified(self, atom: Node) -> Node:
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
        return Repeat(atom, minimum, maximum)

    def _class(self) -> Characters:
        negated = self._take("^")
        sure: list[tuple[int, int]] = []
        possible: list[tuple[int, int]] = []
        while not self._take("]"):
            first = self._class_atom()
            if self._peek() == "-" and self._peek(1) not in ("]", ""):
                self._position += 1
                last = self._class_atom()
                start, end = first.sure[0][0], last.sure[-1][1]
                if first.sure != ((start, start),) or last.sure != ((end, end),) or end < start:
                    raise PatternError("a class has a range without order")
                sure.append((start, end))
                possible.append((start, end))
            else:
                sure += first.sure
                possible += first.possible
        members = self._cased(Characters(united(sure), united(possible)))
        if negated:
            return Characters(without(EVERY, members.possible), without(EVERY, members.sure))
        return members

    def _cased(self, members: Characters) -> Characters:
        """Return ``members`` with the other case of their ASCII letters, if case is ignored."""
        if not self._ignore_case:
            return members
        return Characters(_with_other_case(members.sure), _with_other_case(members.possible))

    def _class_atom(self) -> Characters:
        character = self._peek()
        if not character:
            raise PatternError("a class is not closed")
        self._position += 1
        if character != "\\":
            return _single(ord(character))
        if self._take("b"):
            return _single(0x08)
        return self._escape()

    def _escape(self) -> Characters:
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


def _with_other_case(ranges: Ranges) -> Ranges:
    other = (
        (max(first, low) ^ 0x20, min(last, high) ^ 0x20)
        for first, last in ranges
        for low, high in _LETTERS
        if max(first, low) <= min(last, high)
    )
    return united((*ranges, *other))


def _single(point: int) -> Characters:
    return Characters(((point, point),), ((point, point),))
