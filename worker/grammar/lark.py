"""Converter from Lark grammars to EBNF, for the inputs of custom tools.

Reference: https://lark-parser.readthedocs.io/en/stable/grammar.html. The grammar accepts what Lark's Earley parser does
with ``lexer="dynamic_complete"``: each terminal is replaced by what it matches, and ``%ignore`` is allowed around every
terminal. Names, aliases and priorities shape the tree only, so they are read and dropped. Templates, ``%declare``,
``%override`` and ``%extend``, files of terminals other than ``common``, and what llguidance adds to Lark are refused.
"""

import re

from worker.grammar.ebnf import LAST_CHARACTER, Rules, either, repeated, sequence
from worker.grammar.patterns import whole_regex_of
from worker.grammar.recursion import unproductive_rule
from worker.grammar.regex import PatternError
from worker.grammar.regex_writer import written

_START = "start"
_MAX_DEPTH = 40
_MAX_SIZE = 200_000
"""Maximum length of the EBNF of all terminals in characters."""

_SKIPPED = re.compile(r"(?:\s|//[^\n]*|#[^\n]*)+")
_DEFINITION = re.compile(r"[?!]*(_?[a-z][_a-z0-9]*|_?[A-Z][_A-Z0-9]*)(?:\s*\.\s*-?[0-9]+)?\s*:")
_NAME = re.compile(r"(?:_?[a-z][_a-z0-9]*|_?[A-Z][_A-Z0-9]*)(?![{\[\w])")
_IGNORE = re.compile(r"%ignore\b")
_BAR = re.compile(r"\|")
_OPENING = re.compile(r"[(\[]")
_END = re.compile(rf"[)\]|%]|->|$(?!\s)|{_DEFINITION.pattern}")
_STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"(i?)')
_RANGE = re.compile(rf"{_STRING.pattern[:-4]}\s*\.\.\s*{_STRING.pattern[:-4]}")
_PATTERN = re.compile(r"/(?!/)((?:[^/\\\n]|\\.)+)/([a-z]*)")
_REPEATED = re.compile(r"~\s*([0-9]{1,6})(?:\s*\.\.\s*([0-9]{1,6}))?")
_QUANTIFIER = re.compile(r"[*+?]")
_QUANTIFIERS = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_ALIAS = re.compile(r"->\s*[_a-zA-Z][_a-zA-Z0-9]*")
_IMPORT = re.compile(r"%import\s+common\s*(?:\.\s*(\w+)(?:\s*->\s*(\w+))?|\(([\w\s,]*)\))")
_ESCAPE = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)")
_NAMED = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "\\": "\\", '"': '"', "'": "'", "/": "/"}
_SHORT = 2
"""Length of a backslash and a letter."""
_SHOWN = 24
_BEFORE_TERMINAL = "\0"
"""Stands in a body before each terminal, where text may be ignored."""
_PLACE = re.compile("\1([^:]*):([0-9]+)\1")
"""Stands in a body for a rule or terminal: its name, and the index of the name in the text."""

_NUMBER = r"[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?"
_FLOAT = r"[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_COMMON = {
    "DIGIT": "[0-9]",
    "HEXDIGIT": "[0-9a-fA-F]",
    "INT": "[0-9]+",
    "SIGNED_INT": "[+-]?[0-9]+",
    "DECIMAL": r"[0-9]+\.[0-9]*|\.[0-9]+",
    "FLOAT": _FLOAT,
    "SIGNED_FLOAT": f"[+-]?(?:{_FLOAT})",
    "NUMBER": _NUMBER,
    "SIGNED_NUMBER": f"[+-]?(?:{_NUMBER})",
    "ESCAPED_STRING": r'"(?:[^"\\\n]|\\[^\n])*"',
    "LCASE_LETTER": "[a-z]",
    "UCASE_LETTER": "[A-Z]",
    "LETTER": "[a-zA-Z]",
    "WORD": "[a-zA-Z]+",
    "CNAME": "[a-zA-Z_][a-zA-Z0-9_]*",
    "WS_INLINE": r"[ \t]+",
    "WS": r"[ \t\f\r\n]+",
    "CR": r"\r",
    "LF": r"\n",
    "NEWLINE": r"(?:\r?\n)+",
    "SH_COMMENT": r"#[^\n]*",
    "CPP_COMMENT": r"//[^\n]*",
    "C_COMMENT": r"/\*(?:[^*]|\*+[^*/])*\*+/",
    "SQL_COMMENT": r"--[^\n]*",
}
"""Lark's terminals called ``common``, as regular expressions."""


class LarkError(ValueError):
    """The grammar is invalid or can't be converted; the message names the construct and its line."""


def lark_expression(rules: Rules, definition: str, *, in_json: bool) -> str:
    """Return the expression of the texts of a Lark grammar; its rules are added to ``rules``.

    ``in_json``: the text is the content of a JSON string. Raises :class:`LarkError`.
    """
    reader = _Reader(rules, definition, in_json=in_json)
    reader.read()
    return _Converter(rules, reader).convert()


class _Converter:
    """Puts the rules of EBNF, and what terminals match, in the places of their names."""

    def __init__(self, rules: Rules, reader: "_Reader") -> None:
        self._rules = rules
        self._reader = reader
        self._size = 0
        self._ignored = ""
        """The expression of ignored text."""
        self._names: dict[str, str] = {}
        """The EBNF rules, by the names of rules."""
        self._waiting: list[str] = []
        self._open: list[str] = []
        """The terminals around the current part."""

    def convert(self) -> str:
        ignored = [self._filled(body, in_terminal=True) for body in self._reader.ignored]
        if ignored:
            self._ignored = self._rules.define(repeated(either(ignored), 0, None))
        root = self._named(_START, 0)
        while self._waiting:
            name = self._waiting.pop()
            self._rules.fill(self._names[name], self._filled(self._reader.definitions[name], in_terminal=False))
        unproductive = unproductive_rule(self._rules.text(root))
        for name, rule in self._names.items():
            if rule == unproductive:
                raise LarkError(f"the rule '{name[:_SHOWN]}' never ends, because it always contains itself")
        return sequence([root, self._ignored or '""'])

    def _filled(self, body: str, *, in_terminal: bool) -> str:
        def expression(place: re.Match[str]) -> str:
            name, at = place[1], int(place[2])
            if in_terminal and not name.isupper():
                raise self._reader.failure(f"the rule '{name[:_SHOWN]}' is inside a terminal", at)
            return self._named(name, at)

        text = _PLACE.sub(expression, body)
        self._size += len(text) if in_terminal else 0
        if self._size > _MAX_SIZE:
            raise LarkError("the grammar is too large")
        return text.replace(_BEFORE_TERMINAL, "" if in_terminal or not self._ignored else f"{self._ignored} ")

    def _named(self, name: str, at: int) -> str:
        """Return the expression of a rule or terminal whose name is at an index of the text."""
        body = self._reader.definitions.get(name)
        if body is None:
            raise self._reader.failure(f"'{name[:_SHOWN]}' is not defined", at)
        if not name.isupper():
            if name not in self._names:
                self._names[name] = self._rules.reserve()
                self._waiting.append(name)
            return self._names[name]
        if name in self._open:
            raise self._reader.failure(f"the terminal '{name[:_SHOWN]}' contains itself", at)
        if len(self._open) == _MAX_DEPTH:
            raise self._reader.failure(f"terminals are nested more than {_MAX_DEPTH} deep", at)
        self._open.append(name)
        text = self._filled(body, in_terminal=True)
        self._open.pop()
        return text


class _Reader:
    """Reads the text of a grammar. Bodies are expressions of EBNF with places for names, and for ignored text."""

    def __init__(self, rules: Rules, text: str, *, in_json: bool) -> None:
        self.definitions: dict[str, str] = {}
        self.ignored: list[str] = []
        self._rules = rules
        self._text = text
        self._in_json = in_json
        self._at = 0
        self._depth = 0

    def failure(self, reason: str, at: int | None = None) -> LarkError:
        """Return an error with the line of ``at``, which is the current position by default."""
        line = self._text.count("\n", 0, self._at if at is None else at) + 1
        return LarkError(f"line {line}: {reason}")

    def read(self) -> None:
        """Read the whole grammar."""
        self._skip()
        while self._at < len(self._text):
            if found := self._match(_IMPORT):
                names = re.split(r"[\s,]+", found[3].strip(", \n\t")) if found[3] is not None else [found[1]]
                for name in names:
                    if name not in _COMMON:
                        raise self.failure(
                            f"'common' has no terminal '{name[:_SHOWN]}' that is supported", found.start()
                        )
                    self._define(found[2] or name, self._matched(_COMMON[name]), found.start())
            elif self._match(_IGNORE):
                self.ignored.append(self._alternatives())
            elif found := self._match(_DEFINITION):
                self._define(found[1], self._alternatives(), found.start())
            else:
                raise self.failure(f"{self._shown()} is not supported here")

    def _define(self, name: str, body: str, at: int) -> None:
        if name in self.definitions:
            raise self.failure(f"'{name[:_SHOWN]}' is defined twice", at)
        self.definitions[name] = body

    def _alternatives(self) -> str:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self.failure(f"it is nested more than {_MAX_DEPTH} deep")
        options = [self._expansion()]
        while self._match(_BAR):
            options.append(self._expansion())
        self._depth -= 1
        return either(options)

    def _expansion(self) -> str:
        parts = []
        while not _END.match(self._text, self._at):
            parts.append(self._quantified(self._atom()))
        self._match(_ALIAS)
        return sequence(parts)

    def _quantified(self, atom: str) -> str:
        if not _DEFINITION.match(self._text, self._at) and (found := self._match(_QUANTIFIER)):
            minimum, maximum = _QUANTIFIERS[found[0]]
            return repeated(atom, minimum, maximum)
        if found := self._match(_REPEATED):
            low, high = int(found[1]), int(found[2] or found[1])
            if high < low:
                raise self.failure(f"a repetition from {low} to {high} times is empty", found.start())
            return repeated(atom, low, high)
        return atom

    def _atom(self) -> str:
        if found := self._match(_OPENING):
            inner = self._alternatives()
            closing = ")" if found[0] == "(" else "]"
            if not self._text.startswith(closing, self._at):
                raise self.failure(f"'{closing}' is expected before {self._shown()}")
            self._at += 1
            self._skip()
            return inner if closing == ")" else repeated(inner, 0, 1)
        if found := self._match(_RANGE):
            first, last = self._unescaped(found[1], found.start()), self._unescaped(found[2], found.start())
            if len(first) != 1 or len(last) != 1 or last < first:
                raise self.failure("a range goes from one character to a later one", found.start())
            return self._matched(f"[{_escaped(first)}-{_escaped(last)}]")
        if found := self._match(_STRING):
            text = "".join(map(_escaped, self._unescaped(found[1], found.start())))
            return self._matched(text, ignore_case=bool(found[2]))
        if found := self._match(_PATTERN):
            strange = found[2].strip("isu")
            if strange:
                raise self.failure(
                    f"the flag '{strange[:_SHOWN]}' of a regular expression is not supported", found.start()
                )
            pattern = found[1].replace("\\/", "/")
            return self._matched(pattern, found.start(), ignore_case="i" in found[2], dot_all="s" in found[2])
        if found := self._match(_NAME):
            before = _BEFORE_TERMINAL if found[0].isupper() else ""
            return f"{before}\1{found[0]}:{found.start()}\1"
        raise self.failure(f"{self._shown()} is not supported here")

    def _unescaped(self, text: str, at: int) -> str:
        def plain(escape: re.Match[str]) -> str:
            unit = escape[0]
            if len(unit) > _SHORT and int(unit[_SHORT:], 16) <= LAST_CHARACTER:
                return chr(int(unit[_SHORT:], 16))
            if unit[1:] not in _NAMED:
                raise self.failure(f"the escape '{unit}' is not supported in a string", at)
            return _NAMED[unit[1:]]

        return _ESCAPE.sub(plain, text)

    def _matched(self, pattern: str, at: int | None = None, *, ignore_case: bool = False, dot_all: bool = False) -> str:
        try:
            node = whole_regex_of(pattern, ignore_case=ignore_case, dot_all=dot_all)
            return _BEFORE_TERMINAL + written(self._rules, node, in_json=self._in_json)
        except PatternError as error:
            raise self.failure(str(error), at) from error

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Consume a match at the current position, and what separates it from the next."""
        found = pattern.match(self._text, self._at)
        if found:
            self._at = found.end()
            self._skip()
        return found

    def _skip(self) -> None:
        if found := _SKIPPED.match(self._text, self._at):
            self._at = found.end()

    def _shown(self) -> str:
        rest = self._text[self._at :].split("\n", 1)[0].strip()
        return f"'{rest[:_SHOWN]}'" if rest else "the end"


def _escaped(character: str) -> str:
    """Return ``character`` for a regular expression."""
    return f"\\u{{{ord(character):x}}}"
