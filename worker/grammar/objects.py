"""Grammar rules of objects with named members, in the schema's order; optional members may be omitted."""

from collections.abc import Sequence

import msgspec

from worker.grammar.ebnf import Rules, character_class, either, literal, repeated, sequence, united, without
from worker.grammar.json_text import COLON, COMMA, PLAIN, PLAIN_CHARACTER


class Member(msgspec.Struct, frozen=True):
    """A named member of an object. ``value`` is the expression of its value."""

    name: str
    value: str
    required: bool


def object_of(rules: Rules, members: Sequence[Member], others: str | None, max_others: int | None) -> str:
    """Return the rule of an object with ``members`` and up to ``max_others`` additional ones with values ``others``.

    ``others=None`` allows no additional members, ``max_others=None`` any number of them.
    """
    further = ""
    other = None
    if others is not None and max_others != 0:
        name = other_name(rules, [member.name for member in members])
        other = rules.define(sequence([name, COLON, others]))
        further = repeated(f"{COMMA} {other}", 0, max_others)
    tails = [further or '""']
    for member in reversed(members[1:]):
        part = f"{COMMA} {_pair(member)}"
        tails.append(rules.define(sequence([part if member.required else repeated(part, 0, 1), tails[-1]])))
    tails.reverse()
    options: list[str] = []
    for index, member in enumerate(members):
        options.append(sequence([_pair(member), tails[index]]))
        if member.required:
            break
    else:
        if other is not None:
            rest = repeated(f"{COMMA} {other}", 0, None if max_others is None else max_others - 1)
            options.append(sequence([other, rest]))
        options.append('""')
    return rules.define(sequence([literal("{"), either(options), literal("}")]))


def other_name(rules: Rules, names: Sequence[str]) -> str:
    """Return the rule of a member's name that starts with a different letter than each of ``names``.

    Excluding only the exact names would take XGrammar 20 ms per letter.
    """
    taken = united((ord(name[0]), ord(name[0])) for name in names if name)
    name = sequence([character_class(without(PLAIN, taken)), repeated(PLAIN_CHARACTER, 0, None)])
    return rules.define(sequence([literal('"'), name if "" in names else repeated(name, 0, 1), literal('"')]))


def _pair(member: Member) -> str:
    return sequence([literal(msgspec.json.encode(member.name).decode()), COLON, member.value])
