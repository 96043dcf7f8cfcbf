"""JSON as grammar rules, written compactly.

Free white space is a trap: a small model fills its whole length with it. So the only space is one after a comma or
a colon, which models are used to write, and numbers have at most as many digits as a double tells apart.
"""

from worker.grammar.ebnf import Rules, either, literal, repeated, sequence

COMMA = '"," " "?'
COLON = '":" " "?'
DIGITS = 15
"""Most digits before and behind a number's point."""

INTEGER = f'"-"? ("0" | [1-9] [0-9]{{0,{DIGITS - 1}}})'
NUMBER = f'{INTEGER} ("." [0-9]{{1,{DIGITS}}})? ([eE] [+-]? [0-9]{{1,2}})?'
BOOLEAN = '("true" | "false")'
NULL = '"null"'
PLAIN_CHARACTER = '[^"\\\\\\u0000-\\u001f]'

_HEX = "[0-9a-fA-F]"
_UNIT = f"([0-9abcefABCEF] {_HEX} | [dD] [0-7]) {_HEX} {_HEX}"
_PAIR = f'[dD] [89abAB] {_HEX} {_HEX} "\\\\u" [dD] [c-fC-F] {_HEX} {_HEX}'
"""Two escapes for one character beyond the basic plane: half a pair is no character."""


ESCAPE = f'"\\\\" (["\\\\/bfnrt] | "u" ({_UNIT} | {_PAIR}))'


class JsonRules:
    """The rules of JSON's own types, defined in ``rules`` where they are used."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._value: str | None = None

    def character(self) -> str:
        """One character of a string, as itself or escaped."""
        return self._rules.define(f"{PLAIN_CHARACTER} | {ESCAPE}")

    @staticmethod
    def content(least: int = 0) -> str:
        """At least ``least`` characters of a string, of which so many are written without escapes.

        Characters are no rule of their own: XGrammar would walk through its whole vocabulary for each token (70 ms
        with 49,152 tokens). For the same reason there is no upper limit: :mod:`worker.grammar.lengths`.
        """
        least_plain = [f"{PLAIN_CHARACTER}* {PLAIN_CHARACTER}"] * least
        return sequence([*least_plain, f"{PLAIN_CHARACTER}*", f"({ESCAPE} {PLAIN_CHARACTER}*)*"])

    def string(self, least: int = 0, most: int | None = None) -> str:
        """A string of ``least`` to ``most`` characters; with a ``most``, none of them is escaped."""
        content = self.content(least) if most is None else repeated(PLAIN_CHARACTER, least, most)
        return self._rules.define(sequence([literal('"'), content, literal('"')]))

    def number(self) -> str:
        """Any number."""
        return self._rules.define(NUMBER)

    def integer(self) -> str:
        """Any integer."""
        return self._rules.define(INTEGER)

    def value(self) -> str:
        """Anything."""
        if self._value is None:
            self._value = self._rules.reserve()
            options = [self.object(self._value), self.array(self._value), self.string(), self.number(), BOOLEAN, NULL]
            self._rules.fill(self._value, either(options))
        return self._value

    def object(self, value: str, least: int = 0, most: int | None = None) -> str:
        """An object with any names, whose members follow the expression ``value``."""
        pair = sequence([self.string(), COLON, value])
        return self._rules.define(sequence([literal("{"), self.listed(pair, least, most), literal("}")]))

    def array(self, item: str, least: int = 0, most: int | None = None) -> str:
        """An array of ``least`` to ``most`` items."""
        return self._rules.define(sequence([literal("["), self.listed(item, least, most), literal("]")]))

    def listed(self, part: str, least: int, most: int | None) -> str:
        """``part`` with commas between, ``least`` to ``most`` times."""
        if most == 0:
            return literal("")
        further = repeated(f"{COMMA} {part}", max(least - 1, 0), None if most is None else most - 1)
        listed = sequence([part, further])
        return listed if least else repeated(listed, 0, 1)
