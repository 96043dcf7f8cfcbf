"""Checks that a vocabulary can spell the text that a grammar requires; some lack tokens for single bytes."""

import re
import sys
from collections.abc import Iterable, Iterator

import msgspec

from shared.protocol.errors import ProblemKind, refuse
from shared.protocol.request import ChatRequest
from worker.engine.protocol import OutputGrammar
from worker.grammar.plan import Plan

_TEXT_BYTES = frozenset(range(0x80)) | frozenset(range(0x80, 0xC0)) | frozenset(range(0xC2, 0xF5))
"""The bytes that occur in UTF-8 text."""

_ESSENTIAL = (
    frozenset(range(0x20, 0x7F)) | frozenset(b"\n") | frozenset(range(0x80, 0xC0)) | frozenset(range(0xC2, 0xF1))
)
"""The bytes that a vocabulary needs for everyday text. Some byte-level vocabularies lack a few of the others."""

_LITERAL_OR_CLASS = re.compile(r"""("(?:\\.|[^"\\])*")|\[(\^?)((?:\\.|[^\]\\])*)\]""", re.DOTALL)
_CHARACTER = re.compile(r"\\x([0-9A-Fa-f]{2})|\\u([0-9A-Fa-f]{4})|\\U([0-9A-Fa-f]{8})|\\[ -~]|([^ -~\n])", re.DOTALL)
_UNIT = r"(\\x[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\U[0-9A-Fa-f]{8}|\\?.)"
_RANGE = re.compile(f"{_UNIT}-{_UNIT}", re.DOTALL)


def missing_bytes(pieces: Iterable[bytes]) -> frozenset[int]:
    """Return the bytes of UTF-8 text for which a vocabulary has no single-byte token."""
    return _TEXT_BYTES.difference(piece[0] for piece in pieces if len(piece) == 1)


def spells_everyday_text(missing: frozenset[int]) -> bool:
    """Whether a vocabulary that lacks the bytes ``missing`` can be constrained by grammars at all."""
    return not missing & _ESSENTIAL


def spellable_plan(plan: Plan, request: ChatRequest, missing: frozenset[int]) -> Plan:
    """Return ``plan`` adapted to a vocabulary that lacks the bytes ``missing``.

    Optional calls that it can't spell become unconstrained. Raises :class:`RequestRefused` naming the field that
    requires text that it can't spell.
    """
    if plan.grammar is None or not missing:
        return plan
    supports_grammars = spells_everyday_text(missing)
    unspellable = _unspellable(plan.grammar, missing) if supports_grammars else None
    if supports_grammars and unspellable is None:
        return plan
    if plan.triggers:
        return msgspec.structs.replace(plan, grammar=None, triggers=(), length_limits=())
    forced = request.tool_choice == "required" or request.named_tool is not None
    param = "tool_choice" if forced else plan.param
    reason = (
        "its vocabulary has no tokens for single bytes, so it can't spell every text"
        if unspellable is None
        else f"its vocabulary can't spell the character U+{ord(unspellable):04X}"
    )
    raise refuse(ProblemKind.INVALID, f"This model can't be held to what '{param}' asks for: {reason}.", param=param)


def _unspellable(grammar: OutputGrammar, missing: frozenset[int]) -> str | None:
    """Return a literal or escaped character of the grammar that needs a missing byte, or None.

    Negated character classes are ignored, because they always allow other characters, as are ranges with one end that
    the vocabulary can spell.
    """

    def required(part: re.Match[str]) -> str:
        literal, negated, elements = part.groups()
        return literal or ("" if negated else _RANGE.sub(required_of_range, elements))

    def required_of_range(ends: re.Match[str]) -> str:
        return ends[1] if all(_first_unspellable(end, missing) is not None for end in ends.groups()) else ""

    for text in _texts(grammar):
        character = _first_unspellable(_LITERAL_OR_CLASS.sub(required, text), missing)
        if character is not None:
            return character
    return None


def _first_unspellable(text: str, missing: frozenset[int]) -> str | None:
    for found in _CHARACTER.finditer(text):
        *codes, plain = found.groups()
        code = next((int(digits, 16) for digits in codes if digits), None)
        character = plain or "" if code is None else chr(code) if code <= sys.maxunicode else ""
        if missing.intersection(character.encode(errors="ignore")):
            return character
    return None


def _texts(grammar: OutputGrammar) -> Iterator[str]:
    """Yield the text of the grammar; for a structural tag, all strings in its JSON."""
    if not grammar.tagged:
        yield grammar.text
        return
    waiting = [msgspec.json.decode(grammar.text)]
    while waiting:
        match waiting.pop():
            case str() as text:
                yield text
            case list() as items:
                waiting += items
            case dict() as members:
                waiting += members.values()
