"""Query parameters, as values that can be validated."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from werkzeug.datastructures import MultiDict

_INTEGER = re.compile(r"-?[0-9]{1,9}")


def query_values(query: Mapping[str, str], names: Iterable[str], *, number: str) -> dict[str, Any]:
    """Return the parameters called ``names``, and the one called ``number`` as a number; those that are sent only."""
    value: dict[str, Any] = {name: query[name] for name in names if name in query}
    if number in query:
        value[number] = integer(query[number])
    return value


def integer(text: str) -> int | str:
    """Return ``text`` as a number. Anything else is left to validation, which reports its type."""
    return int(text) if _INTEGER.fullmatch(text) else text


def flag_values(query: Mapping[str, str], *names: str) -> dict[str, bool | str]:
    """Return the booleans called ``names`` that are sent. Anything else is left to validation."""
    return {name: {"true": True, "false": False}.get(query[name], query[name]) for name in names if name in query}


def list_values(query: MultiDict[str, str], name: str) -> dict[str, list[str]]:
    """Return the values of the list called ``name``, under that name, if there are any. SDKs append ``[]`` to it."""
    values = [*query.getlist(name), *query.getlist(f"{name}[]")]
    return {name: values} if values else {}
