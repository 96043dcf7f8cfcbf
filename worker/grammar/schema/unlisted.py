"""Grammar rules of the members of objects whose names the schema does not list."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from worker.grammar.ebnf import Ranges, Rules, character_class, either, literal, repeated, sequence, united, without
from worker.grammar.json_text import COLON, PLAIN, PLAIN_CHARACTER, JsonRules
from worker.grammar.regex import Node, PatternError, first_characters, lengths
from worker.grammar.schema.flat import Flat, both
from worker.grammar.schema.keywords import NoValue, UnsupportedKeyword, escaped
from worker.grammar.schema.members import name_matching
from worker.grammar.schema.strings import Strings


class UnlistedMembers:
    """Compiles ``patternProperties`` and ``additionalProperties`` of the objects in one schema."""

    def __init__(
        self, rules: Rules, json: JsonRules, strings: Strings, lower: Callable[[Any, str], str], *, strict: bool
    ) -> None:
        """``lower`` returns the expression of the schema at a path, or raises :class:`NoValue`."""
        self._rules = rules
        self._json = json
        self._strings = strings
        self._lower = lower
        self._strict = strict

    def expression(
        self, flat: Flat, path: str, names: Sequence[str], named: Sequence[Flat], *, closed: bool
    ) -> str | None:
        """Return the expression of a member whose name is none of ``names``; None if there is none.

        Names that could also be one of ``names``, or match an earlier pattern, are told apart by their first character.
        """
        if not named:
            return None
        firsts: list[tuple[Node, Ranges]] = []
        made: dict[str, tuple[str, list[Any]]] = {}
        begins: dict[str, Ranges] = {}
        for pattern, part in (flat.pattern_properties or {}).items():
            where = f"{path}/patternProperties/{escaped(pattern)}"
            node = self._strings.parsed(pattern, where)
            overlapping = [other for other in begins if not self._strings.are_apart(pattern, other)]
            matched = [name for name in names if self._strings.matches(pattern, name) is not False]
            taken = united(
                (
                    *((ord(name[0]), ord(name[0])) for name in matched if name),
                    *(pair for other in overlapping for pair in begins[other]),
                )
            )
            for other in made.keys() & set(overlapping):
                made[other][1].append(part)
            firsts.append((node, first_characters(node)))
            begins[pattern] = firsts[-1][1]
            if part is False:
                continue
            if any(_says_more(name) and name.pattern != pattern for name in named) and self._strict:
                raise UnsupportedKeyword(f"{path}/propertyNames", "not supported together with 'patternProperties'")
            try:
                rule = name_matching(self._rules, node, taken, empty="" not in matched and not overlapping)
            except PatternError as error:
                raise UnsupportedKeyword(where, f"{error}") from error
            if rule is None:
                raise UnsupportedKeyword(where, "its names can't be told apart from others by their first character")
            made[pattern] = rule, [part]
        options: list[str] = []
        for pattern, (rule, parts) in made.items():
            with suppress(NoValue):
                where = f"{path}/patternProperties/{escaped(pattern)}"
                options.append(sequence([rule, COLON, self._lower(both(parts), where)]))
        value = not closed if flat.additional_properties is None else flat.additional_properties
        if value is not False:
            with suppress(NoValue):
                text = self._lower(value, f"{path}/additionalProperties")
                options += [sequence([rule, COLON, text]) for rule in self._free(path, names, named, firsts)]
        return either(options) if options else None

    def _free(
        self, path: str, names: Sequence[str], named: Sequence[Flat], firsts: Sequence[tuple[Node, Ranges]]
    ) -> Iterator[str]:
        """Yield the rules of additional names, which begin with other characters than ``names`` and patterns."""
        taken = united(
            (
                *((ord(name[0]), ord(name[0])) for name in names if name),
                *(pair for _, begin in firsts for pair in begin),
            )
        )
        if any(not lengths(node)[0] for node, _ in firsts):
            names = [*names, ""]
        for flat in named:
            if flat.enum is not None:
                continue
            if _says_more(flat):
                try:
                    node = self._strings.name(flat, f"{path}/propertyNames")
                    rule = name_matching(self._rules, node, taken, empty="" not in names)
                except PatternError as error:
                    raise UnsupportedKeyword(f"{path}/propertyNames", f"{error}") from error
                if rule:
                    yield rule
            elif not taken and "" not in names:
                yield self._json.string()
            elif free := without(PLAIN, taken):
                name = sequence([character_class(free), f"{PLAIN_CHARACTER}*"])
                yield self._rules.define(
                    sequence([literal('"'), name if "" in names else repeated(name, 0, 1), literal('"')])
                )


def _says_more(name: Flat) -> bool:
    """Whether the schema of a name says more than its type."""
    return replace(name, type=None) != Flat()
