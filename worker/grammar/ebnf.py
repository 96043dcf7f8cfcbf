"""XGrammar's EBNF: builders of literals, classes, repetitions and rules.

Syntax: https://xgrammar.mlc.ai/docs/using_xgrammar/ebnf_guided_generation.html.
"""

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from itertools import groupby

from worker.grammar.xgrammar import chunks, is_swallowing, protect_alternatives, utf8_ranges

LAST_CHARACTER = 0x10FFFF
_MAX_TREE_DEPTH = 32
"""Maximum depth of brackets in one rule."""
_MAX_PAIRS = 700
"""Maximum number of pairs of characters with a rule: XGrammar compares each rule with each part of all others."""
_MIN_USES = 20
"""Number of times that a pair occurs from which on a rule saves time."""
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}

Ranges = tuple[tuple[int, int], ...]
"""Sorted, disjoint ranges of code points, as inclusive pairs of first and last."""


def literal(text: str) -> str:
    """Return an expression that matches exactly ``text``, split into several literals if XGrammar would misread one."""
    quoted = ["".join(_NAMED.get(character) or _printable(character) for character in part) for part in chunks(text)]
    return " ".join(f'"{part}"' for part in quoted) or '""'


def character_class(ranges: Ranges) -> str:
    """Return an expression that matches one character of ``ranges``, which must not be empty."""
    exact = (part for first, last in ranges for part in utf8_ranges(first, last))
    # What XGrammar prints as \xNN comes last, where no digit can follow it; first of these, what begins with a digit.
    ordered = sorted(exact, key=lambda part: (is_swallowing(chr(part[1])), not 0x20 <= part[0] <= 0x7F))
    parts = (_code(first) if first == last else f"{_code(first)}-{_code(last)}" for first, last in ordered)
    return f"[{''.join(parts)}]"


def sequence(parts: Iterable[str]) -> str:
    """Return an expression that matches ``parts`` in order."""
    return " ".join(part for part in parts if part != '""') or '""'


def either(options: Sequence[str]) -> str:
    """Return an expression that matches any of ``options``."""
    distinct = list(dict.fromkeys(options))
    return distinct[0] if len(distinct) == 1 else f"({' | '.join(distinct)})"


def repeated(part: str, minimum: int, maximum: int | None) -> str:
    """Return an expression that matches ``part`` ``minimum`` to ``maximum`` times; ``maximum=None`` is unlimited."""
    if (minimum, maximum) == (1, 1):
        return part
    if maximum == 0:
        return '""'
    quantifier = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((minimum, maximum))
    if quantifier is None:
        quantifier = f"{{{minimum},{'' if maximum is None else maximum}}}"
    return f"({part}){quantifier}"


class Rules:
    """A set of named rules, deduplicated by body.

    >>> rules = Rules()
    >>> rules.text(repeated(rules.define("[a-z]"), 1, 3))
    'root ::= (r0){1,3}\\nr0 ::= [a-z]\\n'
    """

    def __init__(self) -> None:
        self._bodies: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._trees: dict[str, str] = {}
        """The rules that XGrammar reads correctly as they are."""

    def reserve(self) -> str:
        """Return the name of a new rule whose body is set later, for recursive rules."""
        name = f"r{len(self._bodies)}"
        self._bodies[name] = ""
        return name

    def fill(self, name: str, body: str) -> None:
        """Set the body of a reserved rule."""
        self._bodies[name] = body

    def define(self, body: str) -> str:
        """Return the name of the rule with this body, which is created if it does not exist."""
        if body not in self._names:
            self._names[body] = self.reserve()
            self.fill(self._names[body], body)
        return self._names[body]

    def one_of(self, texts: Iterable[str]) -> str:
        """Return the name of the rule that matches exactly the ``texts``.

        It is a tree of common beginnings. Its alternatives begin with different characters, so XGrammar can't merge
        them wrongly, and compiles them in a fifth to a half of the time. It takes 10 µs for each character of their
        ends, so frequent pairs of characters are rules.
        """
        ordered = sorted(set(texts))
        uses = Counter(text[end - 2 : end] for text in ordered for end in range(len(text), 2, -2))
        pairs = {pair for pair, count in uses.most_common(_MAX_PAIRS) if count >= _MIN_USES}
        return self.define_exact(self._tree(ordered, 0, 0, pairs))

    def any_number(self, plain: str, escape: str, end: str = '""') -> str:
        """Return the name of the rule of any number of ``plain`` and ``escape``, and then ``end``.

        ``plain`` is a character class. ``escape`` and ``end`` begin with other characters, and not with a rule. A rule
        beside the class, as in ``plain* (escape plain*)*``, would double the time to compile, because XGrammar follows
        it at every byte of every token.
        """
        again = f"{sequence([f'{plain}*', end])} | {plain}* {escape} "
        if again not in self._names:
            self._names[again] = f"t{len(self._trees)}"
            self._trees[self._names[again]] = again + self._names[again]
        return self._names[again]

    def define_exact(self, body: str) -> str:
        """Return the name of the rule with this body, which XGrammar reads correctly as it is."""
        if body not in self._names:
            self._names[body] = f"t{len(self._trees)}"
            self._trees[self._names[body]] = body
        return self._names[body]

    def _tree(self, texts: Sequence[str], start: int, depth: int, pairs: Set[str]) -> str:
        """Return the expression of the sorted ``texts`` from index ``start`` on."""
        if len(texts) == 1:
            return self._end(texts[0][start:], pairs)
        if depth == _MAX_TREE_DEPTH:
            return self.define(either([literal(text[start:]) for text in texts]))
        first, last = texts[0], texts[-1]
        end = next((at for at in range(start, len(first)) if first[at] != last[at]), len(first))
        branches = (
            self._tree(list(branch), end, depth + 1, pairs) if character else literal("")
            for character, branch in groupby(texts, lambda text: text[end : end + 1])
        )
        return sequence([literal(first[start:end]), either(list(branches))])

    def _end(self, text: str, pairs: Set[str]) -> str:
        """Return the expression of the end of a text. Its first character is no rule: XGrammar would inline that."""
        begin = 1 + (len(text) - 1) % 2
        parts = [text[:begin]]
        for at in range(begin, len(text), 2):
            if text[at : at + 2] in pairs or parts[-1] in pairs:
                parts.append("")
            parts[-1] += text[at : at + 2]
        ends = (self.define_exact(literal(part)) if part in pairs else literal(part) for part in parts[1:])
        return sequence([literal(parts[0]), *ends])

    def text(self, root: str) -> str:
        """Return the text of the grammar whose root rule is the expression ``root``."""
        lines = [f"root ::= {root}", *(f"{name} ::= {body}" for name, body in self._bodies.items())]
        trees = "".join(f"{name} ::= {tree}\n" for name, tree in self._trees.items())
        return protect_alternatives("\n".join(lines) + "\n") + trees


def text_before(end: str) -> str:
    """Return the expression of text without the first two characters of ``end``. It does not end with the first one."""
    first, second = map(ord, end[:2])
    other = character_class(without(((1, LAST_CHARACTER),), ((first, first),)))
    neither = character_class(without(((1, LAST_CHARACTER),), united(((first, first), (second, second)))))
    return f"{other}* ({literal(chr(first))}+ {neither} {other}*)*"


def united(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return ``ranges`` sorted, with overlapping and adjacent ones merged."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined)


def without(ranges: Ranges, taken: Ranges) -> Ranges:
    """Return the difference of ``ranges`` and ``taken``."""
    rest: list[tuple[int, int]] = []
    for start, last in ranges:
        first = start
        for taken_first, taken_last in taken:
            if taken_last < first or taken_first > last:
                continue
            if taken_first > first:
                rest.append((first, taken_first - 1))
            first = taken_last + 1
        if first <= last:
            rest.append((first, last))
    return tuple(rest)


def _printable(character: str) -> str:
    return character if character.isprintable() and character.isascii() else _code(ord(character))


def _code(point: int) -> str:
    character = chr(point)
    if character.isascii() and character.isalnum():
        return character
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"
