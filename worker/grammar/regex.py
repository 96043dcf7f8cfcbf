"""Syntax trees of regular expressions: which texts match, and which characters a match may begin with.

Dialects of regular expressions differ. A grammar makes what ``Characters.sure`` says, which all of them match, and
excludes what ``possible`` says, which ECMA-262 matches.
"""

from collections.abc import Iterable, Iterator

import msgspec

from worker.grammar.ebnf import LAST_CHARACTER, Ranges, united, without

EVERY: Ranges = ((0, LAST_CHARACTER),)
_MAX_TEXT = 500
"""Length of a text above which it is not followed."""
_MAX_STATES = 100
"""Number of states in which a text is followed, or two expressions are compared."""


class PatternError(ValueError):
    """The regular expression is invalid or can't be compiled to a grammar; the message gives the reason."""


class Characters(msgspec.Struct, frozen=True):
    """One character of a class."""

    sure: Ranges
    possible: Ranges


class Concatenation(msgspec.Struct, frozen=True):
    """All of ``parts``, one after the other."""

    parts: "tuple[Node, ...]"


class Alternation(msgspec.Struct, frozen=True):
    """Any one of ``options``."""

    options: "tuple[Node, ...]"


class Repeat(msgspec.Struct, frozen=True):
    """``minimum`` to ``maximum`` times ``part``; ``maximum=None`` is unlimited."""

    part: "Node"
    minimum: int
    maximum: int | None


Node = Characters | Concatenation | Alternation | Repeat

NOTHING = Concatenation(())
"""The empty text."""
_VOID = Characters((), ())
ANYTHING = Repeat(Characters(EVERY, EVERY), 0, None)
"""Any text. Writers know this object."""


def joined(parts: Iterable[Node]) -> Node:
    """Return the sequence of ``parts``."""
    flat: list[Node] = []
    for part in parts:
        flat += part.parts if isinstance(part, Concatenation) else [part]
    return flat[0] if len(flat) == 1 else Concatenation(tuple(flat))


def lengths(node: Node) -> tuple[int, int | None]:
    """Return the lengths of the shortest and of the longest match (None: unlimited) in characters."""
    match node:
        case Characters():
            return 1, 1
        case Repeat(part, minimum, maximum):
            least, most = lengths(part)
            if maximum == 0 or most == 0:
                return minimum * least, 0
            return minimum * least, None if maximum is None or most is None else maximum * most
        case Concatenation(parts):
            least_of, most_of = _both(parts)
            return sum(least_of), None if None in most_of else sum(length or 0 for length in most_of)
        case Alternation(options):
            least_of, most_of = _both(options)
            return min(least_of), None if None in most_of else max(length or 0 for length in most_of)


def _both(nodes: Iterable[Node]) -> tuple[list[int], list[int | None]]:
    pairs = [lengths(node) for node in nodes]
    return [least for least, _ in pairs], [most for _, most in pairs]


def begins(node: Node) -> Iterator[tuple[Characters, Node]]:
    """Yield the characters with which a match may begin, each with what then follows."""
    match node:
        case Characters():
            yield node, NOTHING
        case Alternation(options):
            for option in options:
                yield from begins(option)
        case Concatenation(parts):
            for index, part in enumerate(parts):
                for first, rest in begins(part):
                    yield first, joined([rest, *parts[index + 1 :]])
                if lengths(part)[0]:
                    break
        case Repeat(part, minimum, maximum) if maximum != 0:
            again = node
            if minimum or maximum is not None:
                again = Repeat(part, max(minimum - 1, 0), None if maximum is None else maximum - 1)
            for first, rest in begins(part):
                yield first, joined([rest, again])


def first_characters(node: Node) -> Ranges:
    """Return the characters with which a text that ``node`` possibly matches begins."""
    return united(pair for first, _ in begins(node) for pair in first.possible)


def beginning_without(node: Node, taken: Ranges) -> Node | None:
    """Return a node for the matches of ``node`` that are not empty and begin with none of ``taken``, if there are."""
    options = [
        joined([Characters(sure, without(first.possible, taken)), rest])
        for first, rest in begins(node)
        if (sure := without(first.sure, taken))
    ]
    return Alternation(tuple(options)) if options else None


def not_ahead(node: Node, ahead: Node) -> Node:
    """Return a node for matches of ``node`` that don't begin with ``ahead``, told apart by the first character."""
    taken = first_characters(ahead)
    options = [joined([Characters(without(first.sure, taken), first.possible), rest]) for first, rest in begins(node)]
    if not lengths(node)[0] and lengths(ahead)[0]:
        options.append(NOTHING)
    return Alternation(tuple(options)) if options else _VOID


def is_void(node: Node) -> bool:
    """Whether ``node`` surely matches nothing."""
    match node:
        case Characters(sure):
            return not sure
        case Concatenation(parts):
            return any(map(is_void, parts))
        case Alternation(options):
            return all(map(is_void, options))
        case Repeat(part, minimum):
            return minimum > 0 and is_void(part)


def matches(node: Node, text: str) -> bool | None:
    """Whether ``node`` matches ``text``; None if dialects differ, or if it takes too long to find out."""
    if len(text) > _MAX_TEXT:
        return None
    sure, possible = {node}, {node}
    for point in map(ord, text):
        sure = {rest for state in sure for first, rest in begins(state) if _contains(first.sure, point)}
        possible = {rest for state in possible for first, rest in begins(state) if _contains(first.possible, point)}
        if len(possible) > _MAX_STATES:
            return None
    if any(not lengths(state)[0] for state in sure):
        return True
    return None if any(not lengths(state)[0] for state in possible) else False


def _contains(ranges: Ranges, point: int) -> bool:
    return any(low <= point <= high for low, high in ranges)


def are_apart(first: Node, second: Node) -> bool:
    """Whether no text matches both. False also if that takes too long to find out."""
    seen = {(first, second)}
    waiting = [(first, second)]
    while waiting:
        one, other = waiting.pop()
        if not lengths(one)[0] and not lengths(other)[0]:
            return False
        for characters, rest in begins(one):
            for others, other_rest in begins(other):
                pair = (rest, other_rest)
                if pair not in seen and _meet(characters.possible, others.possible):
                    seen.add(pair)
                    waiting.append(pair)
        if len(seen) > _MAX_STATES:
            return False
    return True


def _meet(first: Ranges, second: Ranges) -> bool:
    return any(low <= high_2 and low_2 <= high for low, high in first for low_2, high_2 in second)
