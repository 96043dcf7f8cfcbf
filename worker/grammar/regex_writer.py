"""Writes syntax trees of regular expressions as expressions of grammars, of text or of the contents of JSON strings.

In JSON strings, matched characters are escaped: a quotation mark in the text is ``\\"`` in the output.
"""

from worker.grammar.ebnf import (
    Ranges,
    Rules,
    character_class,
    either,
    literal,
    repeated,
    sequence,
    text_before,
    united,
    without,
)
from worker.grammar.json_text import JsonRules
from worker.grammar.regex import ANYTHING, Alternation, Characters, Concatenation, Node, PatternError, Repeat, is_void

_ESCAPED = {0x22: '"', 0x5C: "\\", 0x08: "b", 0x0C: "f", 0x0A: "n", 0x0D: "r", 0x09: "t"}
_ESCAPED_IN_JSON: Ranges = ((0x00, 0x1F), (0x22, 0x22), (0x5C, 0x5C), (0xD800, 0xDFFF))
_MAX_COPIES = 200
"""Maximum number of characters that are written one by one. Each takes some 10 ms to compile."""
_NOT_IN_TEXT: Ranges = ((0x00, 0x00), (0xD800, 0xDFFF))


def written(rules: Rules, node: Node, *, in_json: bool, end: str = "") -> str:
    """Return the expression for ``node``; its rules are added to ``rules``. Raises :class:`PatternError`.

    ``end`` follows the text, if it is not in JSON, and is no part of it.
    """
    if node is ANYTHING and (in_json or end):
        return JsonRules(rules).content() if in_json else text_before(end)
    match node:
        case Characters(sure):
            inner = without(sure, ((ord(end[0]), ord(end[0])),)) if end else sure
            return either(_characters(inner, in_json=in_json))
        case Concatenation(parts):
            return sequence(written(rules, part, in_json=in_json, end=end) for part in parts)
        case Alternation(options):
            left = [option for option in options if not is_void(option)]
            if not left:
                raise PatternError("a look-ahead leaves no text")
            return either([written(rules, option, in_json=in_json, end=end) for option in left])
        case Repeat(Characters(sure), minimum, None) if len(forms := _characters(sure, in_json=in_json)) > 1:
            return _unlimited(rules, minimum, *forms)
        case Repeat(part, minimum, maximum):
            return repeated(written(rules, part, in_json=in_json, end=end), minimum, maximum)


def _characters(ranges: Ranges, *, in_json: bool) -> list[str]:
    """Return the expressions of one character of ``ranges``: plain, escaped, or both."""
    forms = []
    if plain := without(ranges, _ESCAPED_IN_JSON if in_json else _NOT_IN_TEXT):
        first, last = plain[0]
        forms.append(literal(chr(first)) if len(plain) == 1 and first == last else character_class(plain))
    escaped = [sign for point, sign in _ESCAPED.items() if any(first <= point <= last for first, last in ranges)]
    if escaped and in_json:
        forms.append(sequence([literal("\\"), character_class(united((ord(sign), ord(sign)) for sign in escaped))]))
    if not forms:
        raise PatternError(f"a class has no character that {'JSON can write' if in_json else 'a text can have'}")
    return forms


def _unlimited(rules: Rules, minimum: int, plain: str, escape: str) -> str:
    """Return ``minimum`` or more characters in a form in which XGrammar scans few tokens for each of them.

    A rule for one character would make it scan its whole vocabulary (:mod:`worker.grammar.json_text`). So the first
    ``minimum - 1`` characters are not escaped.
    """
    rest = rules.any_number(plain, escape)
    if not minimum:
        return rest
    if minimum > _MAX_COPIES:
        raise PatternError(
            f"a class that JSON escapes is repeated {minimum} times; at most {_MAX_COPIES} are supported"
        )
    first = rules.define_exact(f"{plain} {plain}* | {plain} {plain}* {escape} {rest} | {escape} {rest}")
    return sequence([*[plain] * (minimum - 1), first])
