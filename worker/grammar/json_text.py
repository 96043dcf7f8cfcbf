"""Grammar rules of compact JSON.

Whitespace is limited to one optional space after a comma, a colon or an opening bracket, and before a closing bracket:
with unlimited whitespace, a small model may generate nothing else. With line breaks and indentation, the default model
adds members until the length ends, and grammars take longer to compile (docs/json-schema.md). Numbers have at most as
many digits as a double distinguishes.
"""

from worker.grammar.ebnf import Ranges, Rules, character_class, either, literal, repeated, sequence

SPACE = '" "?'
QUOTE = literal('"')
COMMA = f'"," {SPACE}'
COLON = f'":" {SPACE}'
DIGITS = 15
"""Maximum number of digits before and after the decimal point."""

INTEGER = f'"-"? ("0" | [1-9] [0-9]{{0,{DIGITS - 1}}})'
NUMBER = f'{INTEGER} ("." [0-9]{{1,{DIGITS}}})? ([eE] [+-]? [0-9]{{1,2}})?'
BOOLEAN = '("true" | "false")'
NULL = '"null"'
PLAIN: Ranges = ((0x20, 0x21), (0x23, 0x5B), (0x5D, 0xD7FF), (0xE000, 0x10FFFF))
"""The characters that need no escape in a string."""
PLAIN_CHARACTER = character_class(PLAIN)
"""Not a negated class: XGrammar's negated classes also match bytes that are not UTF-8."""

_HEX = "[0-9a-fA-F]"
_UNIT = f"([0-9abcefABCEF] {_HEX} | [dD] [0-7]) {_HEX} {_HEX}"
_PAIR = f'[dD] [89abAB] {_HEX} {_HEX} "\\\\u" [dD] [c-fC-F] {_HEX} {_HEX}'
"""A surrogate pair. Half a pair is not a valid character."""
_ESCAPED = f'["\\\\/bfnrt] | "u" ({_UNIT} | {_PAIR})'


class JsonRules:
    """Rules of the JSON types, added to ``rules`` on first use."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._value: str | None = None

    def content(self) -> str:
        """Return the rule of any number of characters of a string.

        With a rule for one character, XGrammar would scan its whole vocabulary for each token (70 ms with 49,152
        tokens). So the upper limit is enforced by :mod:`worker.grammar.lengths`.
        """
        return self._any_number(literal(""))

    def string(self, minimum: int = 0, maximum: int | None = None) -> str:
        """Return the rule of a string of ``minimum`` to ``maximum`` characters.

        The first ``minimum`` are not escaped; with ``maximum``, none is.
        """
        if maximum is None:
            return self._rules.define(sequence([QUOTE, *[PLAIN_CHARACTER] * minimum, self._any_number(QUOTE)]))
        return self._rules.define(sequence([QUOTE, repeated(PLAIN_CHARACTER, minimum, maximum), QUOTE]))

    def _any_number(self, end: str) -> str:
        escape = sequence([literal("\\"), self._rules.define(_ESCAPED)])
        return self._rules.any_number(PLAIN_CHARACTER, escape, end)

    def number(self) -> str:
        """Return the rule of any number."""
        return self._rules.define(NUMBER)

    def integer(self) -> str:
        """Return the rule of any integer."""
        return self._rules.define(INTEGER)

    def value(self) -> str:
        """Return the rule of any JSON value."""
        if self._value is None:
            self._value = self._rules.reserve()
            options = [self.object(self._value), self.array(self._value), self.string(), self.number(), BOOLEAN, NULL]
            self._rules.fill(self._value, either(options))
        return self._value

    def object(self, value: str, minimum: int = 0, maximum: int | None = None) -> str:
        """Return the rule of an object with ``minimum`` to ``maximum`` members of any name with ``value`` as values."""
        pair = sequence([self.string(), COLON, value])
        return self._rules.define(enclosed("{", self.listed(pair, minimum, maximum), "}", empty=not minimum))

    def array(self, item: str, minimum: int = 0, maximum: int | None = None) -> str:
        """Return the rule of an array of ``minimum`` to ``maximum`` items."""
        return self._rules.define(enclosed("[", self.listed(item, minimum, maximum), "]", empty=not minimum))

    def listed(self, part: str, minimum: int, maximum: int | None) -> str:
        """Return the expression of ``minimum`` to ``maximum`` comma-separated ``part``.

        The least is one, unless ``maximum`` is 0; :func:`enclosed` allows none.
        """
        if maximum == 0:
            return literal("")
        further = repeated(f"{COMMA} {part}", max(minimum - 1, 0), None if maximum is None else maximum - 1)
        return sequence([part, further])


def json_mode_grammar() -> str:
    """Return the grammar of JSON mode: an object of at least one member, with a space after its opening bracket.

    The most likely compact beginning is the token ``{"``. After it, the default model makes up keys, as in minified
    documents: it has .58 of the fields right, and .78 after a space.
    """
    rules = Rules()
    json = JsonRules(rules)
    members = json.listed(sequence([json.string(), COLON, json.value()]), 1, None)
    return rules.text(sequence([literal("{ "), members, SPACE, literal("}")]))


def enclosed(begin: str, content: str, end: str, *, empty: bool) -> str:
    """Return the expression of an object or array with ``content`` between brackets; ``empty``: or none."""
    if content == literal(""):
        return literal(begin + end)
    inside = sequence([SPACE, content, SPACE])
    return sequence([literal(begin), repeated(inside, 0, 1) if empty else inside, literal(end)])
