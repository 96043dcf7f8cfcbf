"""Strict JSON decoding of request bodies, which refuses everything that JSON parsers disagree about."""

import json
import math
import re
from itertools import islice
from typing import Any

import jiter

from shared.protocol.errors import ProblemKind, RequestRefused, refuse

MAX_DEPTH = 64
"""Maximum nesting depth of arrays and objects. Recursive code relies on it."""
MAX_VALUES = 150_000
"""Maximum number of values in a body, counted by the commas and opening brackets outside strings. Without it, a few
megabytes of empty objects would occupy a hundred and take seconds to process. The largest legitimate bodies are prompts
of token ids."""
# Matches up to the next comma or opening bracket outside strings. It matches any bytes, without backtracking.
_UP_TO_VALUE = re.compile(rb"""(?:[^",\[{]++|"(?:[^"\\]++|\\.)*+"?)*+(?:([,\[{])|\Z)""", re.DOTALL)

# Matches if a number may be beyond double precision's range: by its exponent, or by its digits. Each match
# begins with a digit: searching for letters, too, takes eight times as long.
_MAY_BE_INFINITE = re.compile(rb"[0-9](?:(?<=[eE].)[0-9]|(?<=[eE]\+.)[0-9]|(?<![0-9]{2})[0-9]{299})")
_SHOWN = 200
"""Maximum number of characters of the parser's message, which may quote a key."""


def decode_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in ``body``.

    Refused, each as a 400: text that is not UTF-8 or not JSON, anything but an object, duplicate keys, NaN and
    infinities, numbers beyond double precision's range, lone surrogates, and more than ``MAX_DEPTH`` levels or
    ``MAX_VALUES`` values. Raises :class:`RequestRefused`.
    """
    if count_values(body) > MAX_VALUES:
        raise _unreadable(f"it holds more than {MAX_VALUES} values")
    try:
        value = _parse(body)
    except ValueError as error:
        raise _unreadable(str(error)[:_SHOWN]) from None
    if not isinstance(value, dict):
        raise _unreadable("the body must be a JSON object")
    # Both conditions may hold because of what is in strings, and never fail to hold for a body that must be refused.
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH or _MAY_BE_INFINITE.search(body):
        _check_values(value)
    return value


def _parse(body: bytes) -> Any:
    return jiter.from_json(body, allow_inf_nan=False, cache_mode="keys", catch_duplicate_keys=True)


def json_text(value: Any) -> str:
    """Return ``value`` as compact JSON, with numbers of any size."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def count_values(text: bytes) -> int:
    """Return a bound on the number of values in JSON ``text``. Where the bound would exceed ``MAX_VALUES``, return the
    number itself, at most ``MAX_VALUES`` + 1.

    The text is not parsed, because parsed values take up to 24 times the memory.
    """
    bound = text.count(b"[") + text.count(b"{") + text.count(b",")  # including those in strings
    if bound <= MAX_VALUES:
        return bound
    return sum(1 for value in islice(_UP_TO_VALUE.finditer(text), MAX_VALUES + 1) if value[1])


def _check_values(value: Any) -> None:
    """Check depth and numbers level by level rather than recursively."""
    level = [value]
    for _ in range(MAX_DEPTH):
        children = [child for item in level for child in (item.values() if isinstance(item, dict) else item)]
        if any(isinstance(child, float) and math.isinf(child) for child in children):
            raise _unreadable("a number is too large")
        level = [child for child in children if isinstance(child, dict | list)]
        if not level:
            return
    raise _unreadable(f"it is nested deeper than {MAX_DEPTH} levels")


def _unreadable(why: str) -> RequestRefused:
    return refuse(ProblemKind.INVALID, f"We could not parse the JSON body of your request: {why}.")
