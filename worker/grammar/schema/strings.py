"""Grammar rules of strings, and the regular expressions of a schema's strings and names of properties."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from worker.grammar.ebnf import Rules, sequence, united
from worker.grammar.json_text import QUOTE, JsonRules
from worker.grammar.lengths import GRAMMAR_MINIMUM
from worker.grammar.patterns import regex_of, without_upper_limit
from worker.grammar.regex import (
    ANYTHING,
    EVERY,
    NOTHING,
    Characters,
    Node,
    PatternError,
    Repeat,
    are_apart,
    beginning_without,
    joined,
    lengths,
    matches,
)
from worker.grammar.regex import Alternation as AnyOf
from worker.grammar.regex_writer import written
from worker.grammar.schema.flat import Flat, whole
from worker.grammar.schema.keywords import FORMATS, NoValue, UnsupportedKeyword

_COMPARISON = 50
"""Steps that the comparison of two patterns counts for."""

_NAME = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_NAME_CHARACTER = Characters(_NAME, _NAME)
_MAX_COUNTED = 16
"""Maximum length of a name, or of bare text, of limited length, which a grammar counts."""


class Options(msgspec.Struct, frozen=True):
    """How schemas are compiled; the fields are arguments of :func:`worker.grammar.schema.compiler.schema_grammar`.

    If ``end`` is set, the value is a string as bare text, which this follows.
    """

    strict: bool = True
    lengths: bool = True
    minimums: bool = False
    end: str = ""


class Strings:
    """Compiles the keywords of strings in one schema."""

    def __init__(self, rules: Rules, options: Options, step: Callable[..., None]) -> None:
        """``step`` is called with a path and a number of steps (by default 1), and limits their sum."""
        self._rules = rules
        self._options = options
        self._step = step
        self._regexes: dict[str, Node] = {}

    def string(self, flat: Flat, path: str, gone: Sequence[str] = ()) -> str:
        """Return the rule of strings that are valid under ``flat`` and none of ``gone``.

        Raises :class:`SchemaError`, and :class:`NoValue` if there are none.
        """
        minimum, maximum = flat.bounds("min_length", "max_length", path)
        if not self._options.strict:
            minimum = min(minimum, GRAMMAR_MINIMUM)
        expression, keyword = _expression(flat)
        if self._options.end:
            return self._text(expression, minimum, maximum, keyword, path)
        if expression is None and minimum > GRAMMAR_MINIMUM and not flat.counted and self._options.minimums:
            minimum = 0
        self._step(f"{path}/minLength", minimum)
        if expression is None and not gone:
            return JsonRules(self._rules).string(minimum, None if self._options.lengths else maximum)
        try:
            node = ANYTHING if expression is None else self._regex(expression)
            if self._options.strict and self._options.lengths:
                node, _ = without_upper_limit(node)
            if gone := [text for text in gone if matches(node, text) is not False]:
                node = self._without_texts(node, gone, minimum if expression is None else 0, path)
            content = written(self._rules, node, in_json=True)
        except PatternError as error:
            if self._options.strict:
                raise UnsupportedKeyword(f"{path}/{keyword}", f"{error}") from error
            return JsonRules(self._rules).string(minimum)
        self._check_lengths(node, minimum, None if self._options.lengths else maximum, path, keyword)
        return self._rules.define(sequence([QUOTE, content, QUOTE]))

    def _text(self, expression: str | None, minimum: int, maximum: int | None, keyword: str, path: str) -> str:
        """Return the expression of bare text. Raises :class:`UnsupportedKeyword`."""
        node: Node = ANYTHING
        if expression is None and (minimum or maximum is not None):
            keyword = "minLength" if maximum is None or minimum > _MAX_COUNTED else "maxLength"
            node = Repeat(Characters(EVERY, EVERY), minimum, minimum if maximum is None else maximum)
        try:
            limit: int | bool | None = max(minimum, maximum or 0) > _MAX_COUNTED
            if expression is not None:
                node, limit = without_upper_limit(self._regex(expression))
                self._check_lengths(node, minimum, maximum, path, keyword)
            if limit:
                raise PatternError("these are too many characters to be counted in this model's calls")
            node = joined([node, ANYTHING]) if expression is None and minimum and maximum is None else node
            return written(self._rules, node, in_json=False, end=self._options.end)
        except PatternError as error:
            raise UnsupportedKeyword(f"{path}/{keyword}", f"{error}") from error

    def name(self, flat: Flat, path: str) -> Node:
        """Return the regular expression of names with the schema ``flat``. Lengths are counted, of word characters.

        Raises :class:`SchemaError` and :class:`PatternError`.
        """
        minimum, maximum = flat.bounds("min_length", "max_length", path)
        expression, keyword = _expression(flat)
        if expression is None and maximum is None:
            return joined([Repeat(Characters(EVERY, EVERY), minimum, minimum), ANYTHING])
        if expression is None:
            return Repeat(_NAME_CHARACTER, minimum, max(minimum, min(maximum or 0, _MAX_COUNTED)))
        node = self.parsed(expression, path)
        self._check_lengths(node, minimum, maximum, path, keyword)
        return node

    def _check_lengths(self, node: Node, minimum: int, maximum: int | None, path: str, keyword: str) -> None:
        """Raise :class:`UnsupportedKeyword` unless the matches of ``node`` have these lengths."""
        least, most = lengths(node)
        too_long = maximum is not None and (most is None or most > maximum)
        if self._options.strict and (least < minimum or too_long):
            name = "maxLength" if too_long else "minLength"
            raise UnsupportedKeyword(
                f"{path}/{name}", f"not supported together with '{keyword}', unless that implies it"
            )

    def parsed(self, pattern: str, path: str) -> Node:
        """Return a parsed pattern. Raises :class:`UnsupportedKeyword`."""
        try:
            return self._regex(pattern)
        except PatternError as error:
            raise UnsupportedKeyword(path, f"{error}") from error

    def matches(self, pattern: str, text: str) -> bool | None:
        """Whether ``pattern`` matches ``text``; None if that is not known."""
        self._step("")
        try:
            return matches(self._regex(pattern), text)
        except PatternError:
            return None

    def are_apart(self, first: str, second: str) -> bool:
        """Whether no text matches both patterns."""
        self._step("", _COMPARISON)
        try:
            return are_apart(self._regex(first), self._regex(second))
        except PatternError:
            return False

    @staticmethod
    def _without_texts(node: Node, gone: Sequence[str], minimum: int, path: str) -> Node:
        """Return the matches of ``node`` that are none of the texts ``gone``, told apart by their first character."""
        if minimum:
            node = joined([Repeat(Characters(EVERY, EVERY), minimum, minimum), ANYTHING])
        left = beginning_without(node, united(firsts(gone)))
        if not lengths(node)[0] and "" not in gone:
            left = NOTHING if left is None else AnyOf((left, NOTHING))
        if left is None:
            raise NoValue(path, "no string begins in another way than the excluded ones")
        return left

    def _regex(self, pattern: str) -> Node:
        """Return a parsed pattern. Raises :class:`PatternError`."""
        if pattern not in self._regexes:
            self._regexes[pattern] = regex_of(pattern)
        return self._regexes[pattern]


def _expression(flat: Flat) -> tuple[str | None, str]:
    """Return the regular expression of strings, and the keyword that it comes from.

    With a pattern, the format is an annotation, as JSON Schema's ``format`` is by default: clients such as zod send
    both, where the pattern describes the format. So are formats that have no expression.
    """
    if flat.format is None or flat.pattern is not None:
        return flat.pattern, "pattern"
    return (whole(FORMATS[flat.format]) if flat.format in FORMATS else None), "format"


def firsts(texts: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of the first characters of ``texts``."""
    return ((ord(text[0]), ord(text[0])) for text in texts if text)
