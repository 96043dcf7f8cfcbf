"""Grammar rules of the members of objects whose names the schema does not list."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from worker.grammar.ebnf import Ranges, Rules, character_class, either, repeated, sequence, united, without
from worker.grammar.json_text import COLON, PLAIN, PLAIN_CHARACTER, QUOTE, JsonRules
from worker.grammar.regex import Node, PatternError, beginning_without, first_characters, lengths
from worker.grammar.regex_writer import written
from worker.grammar.schema.flat import Flat, both
from worker.grammar.schema.keywords import NoValue, UnsupportedKeyword, escaped
from worker.grammar.schema.strings import Options, Strings, firsts


class UnlistedMembers:
    """Compiles ``patternProperties`` and ``additionalProperties`` of the objects in one schema."""

    def __init__(self, rules: Rules, options: Options, strings: Strings, lower: Callable[[Any, str], str]) -> None:
        """``lower`` returns the expression of the schema at a path, or raises :class:`NoValue`."""
        self._rules = rules
        self._options = options
        self._strings = strings
        self._lower = lower

    def expression(
        self, flat: Flat, path: str, names: Sequence[str], named: Sequence[Flat], *, closed: bool
    ) -> str | None:
        """Return the expression of a member whose name is none of ``names``; None if there is none.

        Names that could also be one of ``names``, or match an earlier pattern, are told apart by their first character.
        """
        if not named:
            return None
        nodes: dict[str, Node] = {}
        made: dict[str, tuple[str, list[Any]]] = {}
        for pattern, part in (flat.pattern_properties or {}).items():
            where = f"{path}/patternProperties/{escaped(pattern)}"
            overlapping = [other for other in nodes if not self._strings.are_apart(pattern, other)]
            node = nodes[pattern] = self._strings.parsed(pattern, where)
            matched = [name for name in names if self._strings.matches(pattern, name) is not False]
            taken = united(
                (*firsts(matched), *(pair for other in overlapping for pair in first_characters(nodes[other])))
            )
            for other in made.keys() & set(overlapping):
                made[other][1].append(part)
            if part is False:
                continue
            if any(_says_more(name) and name.pattern != pattern for name in named) and self._options.strict:
                raise UnsupportedKeyword(f"{path}/propertyNames", "not supported together with 'patternProperties'")
            rule = self._name(node, taken, where, empty="" not in matched and not overlapping)
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
                options += [sequence([rule, COLON, text]) for rule in self._free(path, names, named, nodes.values())]
        return either(options) if options else None

    def _name(self, node: Node, taken: Ranges, where: str, *, empty: bool) -> str | None:
        """Return the rule of a name that matches ``node`` and begins with none of ``taken``, if there is one.

        ``empty``: it may be empty, if nothing is ``taken``. Excluding only exact names would take XGrammar 20 ms per
        letter.
        """
        left = beginning_without(node, taken) if taken or not empty else node
        if left is None:
            return None
        try:
            return self._rules.define(sequence([QUOTE, written(self._rules, left, in_json=True), QUOTE]))
        except PatternError as error:
            raise UnsupportedKeyword(where, f"{error}") from error

    def _free(
        self, path: str, names: Sequence[str], named: Sequence[Flat], patterns: Collection[Node]
    ) -> Iterator[str]:
        """Yield the rules of additional names, which begin with other characters than ``names`` and patterns."""
        taken = united((*firsts(names), *(pair for node in patterns for pair in first_characters(node))))
        if any(not lengths(node)[0] for node in patterns):
            names = [*names, ""]
        for flat in named:
            if flat.enum is not None:
                continue
            if _says_more(flat):
                where = f"{path}/propertyNames"
                if rule := self._name(self._strings.name(flat, where), taken, where, empty="" not in names):
                    yield rule
            elif not taken and "" not in names:
                yield JsonRules(self._rules).string()
            elif free := without(PLAIN, taken):
                name = sequence([character_class(free), f"{PLAIN_CHARACTER}*"])
                yield self._rules.define(sequence([QUOTE, name if "" in names else repeated(name, 0, 1), QUOTE]))


def _says_more(name: Flat) -> bool:
    """Whether the schema of a name says more than its type."""
    return replace(name, type=None) != Flat()
