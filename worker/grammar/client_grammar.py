"""Clients' EBNF grammars, rewritten so that XGrammar reads them correctly (:mod:`worker.grammar.xgrammar`).

Negated classes become positive ones, because XGrammar's also match bytes that are not UTF-8.
"""

import re

from worker.grammar.ebnf import character_class, without
from worker.grammar.patterns import whole_regex_of
from worker.grammar.recursion import unproductive_rule
from worker.grammar.regex import Alternation, Characters, PatternError
from worker.grammar.xgrammar import character_of, protect_alternatives, split

_PART = re.compile(r'#[^\n]*|"(?:[^"\\\n]|\\.)*"|\[(?:[^\]\\\n]|\\.)*\]', re.DOTALL)
_UNIT = re.compile(
    r"\\(?:x[0-9a-fA-F]+|x\{[0-9a-fA-F]+\}|u[0-9a-fA-F]{4}|u\{[0-9a-fA-F]+\}|U[0-9a-fA-F]{8}|.)|.", re.DOTALL
)
_NOT_IN_REGEXES = {"\\a": "\a", "\\e": "\x1b"}
"""XGrammar's escapes that regular expressions don't have."""
_SHORT = 2
"""Length of a backslash and a letter. Longer escapes are numbers."""
_SHOWN = 64
_NUL = ((0, 0),)
"""A grammar has none."""


def readable_grammar(ebnf: str) -> str:
    """Return a grammar with its literals, classes and alternatives rewritten.

    Invalid parts stay as they are; XGrammar reports them. Raises :class:`PatternError` for a rule that matches no text,
    which XGrammar would not enforce.
    """
    if (name := unproductive_rule(ebnf)) is not None:
        raise PatternError(f"the rule '{name[:_SHOWN]}' never ends, because it always contains itself")
    return protect_alternatives(_PART.sub(lambda part: _rewritten(part[0]), ebnf))


def _rewritten(part: str) -> str:
    if part.startswith("["):
        return _class(part)
    if part.startswith("#"):
        return part
    literals = ['"' + "".join(units) + '"' for units in split(_UNIT.findall(part[1:-1]))]
    return part if len(literals) <= 1 else f"({' '.join(literals)})"


def _class(text: str) -> str:
    try:
        match whole_regex_of(_UNIT.sub(lambda unit: _in_regex(unit[0]), text)):
            case Alternation((Characters(sure),)) if members := without(sure, _NUL):
                return character_class(members)
    except PatternError:
        pass
    return text


def _in_regex(unit: str) -> str:
    """Return a character or escape of XGrammar's as one of regular expressions."""
    character = _NOT_IN_REGEXES.get(unit)
    if character is None and len(unit) <= _SHORT:
        return unit
    return f"\\u{{{ord(character or character_of(unit)):x}}}"
