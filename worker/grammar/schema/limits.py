"""Length limits of strings that the engine's process enforces (:mod:`worker.grammar.lengths`), not the grammar.

These are ``maxLength``, long ``minLength``, and the upper limits of patterns such as ``^[a-z]{1,64}$``, which become a
``maxLength``.
"""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from worker.engine.protocol import LengthLimits
from worker.grammar.lengths import GRAMMAR_MINIMUM
from worker.grammar.patterns import regex_of, without_upper_limit
from worker.grammar.regex import PatternError

_LONG = re.compile(rf'\\u00|"minLength"\s*:(?!\s*[0-{GRAMMAR_MINIMUM}]\s*[,}}])')
"""In a schema that may have a long ``minLength``. An escape may hide one."""


def length_limits_of(begins: Iterable[str], schema: str, *, minimums: bool = False) -> tuple[LengthLimits, ...]:
    """Return the values to check, one for each of ``begins``; empty if ``schema`` limits no string or list.

    ``minimums``: they include every long ``minLength``, which the grammar leaves out. Otherwise, the grammar counts.
    """
    minimums = minimums and _LONG.search(schema) is not None
    if "pattern" in schema:
        try:
            schema = msgspec.json.encode(_with_limits_of_patterns(msgspec.json.decode(schema))).decode()
        except (msgspec.DecodeError, RecursionError):
            return ()  # It is refused when its grammar is made.
    watched = minimums or "maxLength" in schema or "uniqueItems" in schema
    return tuple(LengthLimits(begin, schema, minimums=minimums) for begin in begins) if watched else ()


def _with_limits_of_patterns(document: Any) -> Any:
    """Return a decoded schema, changed in place. What looks like a schema, such as a value, may change too: it is not
    used for anything else."""
    waiting = [document]
    while waiting:
        match waiting.pop():
            case list() as items:
                waiting += items
            case dict() as members:
                waiting += members.values()
                maximum, limit = members.get("maxLength"), _limit_of(members.get("pattern"))
                if limit is not None and isinstance(maximum, int | float | None):
                    members["maxLength"] = limit if maximum is None else min(maximum, limit)
    return document


def _limit_of(pattern: Any) -> int | None:
    try:
        return without_upper_limit(regex_of(pattern))[1] if isinstance(pattern, str) else None
    except PatternError:
        return None
