"""Grammar rules of objects with named members, and of lists that take each of some values at most once."""

from collections.abc import Sequence
from os.path import commonprefix

import msgspec

from worker.grammar.ebnf import Rules, either, literal, repeated, sequence
from worker.grammar.json_text import COLON, COMMA, enclosed


class Member(msgspec.Struct, frozen=True):
    """A named member of an object. ``value`` is the expression of its value."""

    name: str
    value: str
    required: bool


def counted_parts(required: Sequence[bool], minimum: int, maximum: int | None) -> int:
    """Return the number of states of a list of parts, each of which is ``required`` or not, beyond one for each part.

    There are more if its grammar has to count the parts (:func:`subset_of`).
    """
    if maximum is None and minimum <= sum(required):
        return 0
    return len(required) * min(max(minimum, maximum or 0), len(required))


def object_of(
    rules: Rules, members: Sequence[Member], others: str | None, minimum: int = 0, maximum: int | None = None
) -> str | None:
    """Return the rule of an object with ``members`` in order, then ``others``: the expression of any other member.

    ``others=None`` allows no other members. There are ``minimum`` to ``maximum`` members. Of the others, one counts
    towards the minimum, because the next may have the same name. None if there is no such object.
    """
    # The rules of values are shared by members, and each state that XGrammar does not know yet takes it time.
    values = {member.value: rules.define(sequence([COLON, member.value])) for member in members}
    keys = [msgspec.json.encode(member.name).decode() for member in members]
    begin = commonprefix(keys) if len(keys) >= _MANY else ""  # noqa: RUF071 - they are no paths
    shared = rules.define(literal(begin)) if begin else literal(begin)
    parts = [
        (sequence([shared, literal(key.removeprefix(begin)), values[member.value]]), member.required)
        for key, member in zip(keys, members, strict=True)
    ]
    return subset_of(rules, "{", parts, others, "}", minimum, maximum)


def subset_of(
    rules: Rules,
    begin: str,
    parts: Sequence[tuple[str, bool]],
    others: str | None,
    end: str,
    minimum: int,
    maximum: int | None,
) -> str | None:
    """Return the rule of a list of ``parts`` in order, and then of ``others`` any number of times, in brackets.

    A part is an expression and whether it is required. There are ``minimum`` to ``maximum`` of all. None if there is no
    such list.
    """
    empty = not minimum and not any(required for _, required in parts)
    content = None if maximum == 0 else _Subset(rules, parts, others, max(minimum, 1), maximum).tail(0, 0)
    if content is None:
        return literal(begin + end) if empty else None
    return rules.define(enclosed(begin, content, end, empty=empty))


_MANY = 100
"""Members from which on the common beginning of their names is a rule."""
_RUN = 128
"""Required parts after which a new rule begins. Each rule on the way costs XGrammar time at every token."""


class _Subset:
    def __init__(
        self, rules: Rules, parts: Sequence[tuple[str, bool]], others: str | None, minimum: int, maximum: int | None
    ) -> None:
        self._rules = rules
        self._parts = parts
        self._comma = rules.define(COMMA)
        self._others = None if others is None else rules.define(others)
        self._minimum = minimum
        self._maximum = maximum
        self._counts = minimum > sum(required for _, required in parts) or maximum is not None
        """Whether the number of parts so far matters, beyond whether there is one."""
        self._most = max(minimum, maximum or 0) if self._counts else 1
        self._known: dict[tuple[int, int], str | None] = {}

    def tail(self, index: int, count: int) -> str | None:
        """Return the expression of what may follow ``count`` of the first ``index`` parts; None if nothing may."""
        # From the end, because the parts may be more than Python's stack is deep.
        for at in range(len(self._parts), index, -1):
            for before in range(min(at, self._most) + 1):
                self._tail(at, before)
        return self._tail(index, count)

    def _tail(self, index: int, count: int) -> str | None:
        place = index, min(count, self._most)
        if place not in self._known:
            made = self._rest(count) if index == len(self._parts) else self._next(index, count)
            shared = index and (not self._parts[index - 1][1] or index % _RUN == 0)
            self._known[place] = self._rules.define(made) if shared and made and made != '""' else made
        return self._known[place]

    def _next(self, index: int, count: int) -> str | None:
        part, required = self._parts[index]
        options = []
        full = self._maximum is not None and count >= self._maximum
        with_it = None if full else self._tail(index + 1, count + 1)
        if with_it is not None:
            options.append(sequence([self._comma, part, with_it] if count else [part, with_it]))
        without_it = None if required else self._tail(index + 1, count)
        if without_it is not None:
            options.append(without_it)
        return either(options) if options else None

    def _rest(self, count: int) -> str | None:
        """Return the expression of the other members, after ``count`` named ones."""
        missing = self._minimum - count if self._counts else 0
        most = None if self._maximum is None else self._maximum - count
        if missing > 1 or (missing == 1 and (self._others is None or most == 0)):
            return None
        if self._others is None or most == 0:
            return '""'
        further = f"{self._comma} {self._others}"
        if count:
            return repeated(further, max(missing, 0), most)
        listed = sequence([self._others, repeated(further, 0, None if most is None else most - 1)])
        return listed if missing > 0 else repeated(listed, 0, 1)
