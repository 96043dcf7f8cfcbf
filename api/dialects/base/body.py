"""Strict JSON decoding of request bodies, which refuses everything that JSON parsers disagree about.

It uses the standard library's parser, the only available one that exposes duplicate keys and exact numbers.
"""

import json
import math
import re
from itertools import islice
from typing import Any, NoReturn

from shared.protocol.errors import ProblemKind, RequestRefused, refuse

MAX_DEPTH = 64
"""Maximum nesting depth of arrays and objects. Recursive code relies on it."""
MAX_VALUES = 150_000
"""Maximum number of values in a body, counted by the commas and opening brackets outside strings. Without it, a few
megabytes of empty objects would occupy a hundred and take seconds to process. The largest legitimate bodies are prompts
of token ids."""
# Matches up to the next comma or opening bracket outside strings. It matches any bytes, without backtracking.
_UP_TO_VALUE = re.compile(rb"""(?:[^",\[{]++|"(?:[^"\\]++|\\.)*+"?)*+(?:([,\[{])|\Z)""", re.DOTALL)


class _Oddity(ValueError):
    """A construct that JSON parsers disagree about."""


def decode_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in ``body``.

    Refused, each as a 400: text that is not UTF-8 or not JSON, anything but an object, duplicate keys, NaN and
    infinities, numbers beyond double precision's range, lone surrogates, and more than ``MAX_DEPTH`` levels or
    ``MAX_VALUES`` values. Raises :class:`RequestRefused`.
    """
    openings = body.count(b"[") + body.count(b"{")
    if count_values(body) > MAX_VALUES:
        raise _unreadable(f"it holds more than {MAX_VALUES} values")
    try:
        value = _parse(body.decode())
    except UnicodeDecodeError as error:
        raise _unreadable(f"it is not UTF-8 (byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise _unreadable(f"{error.msg} at line {error.lineno}, column {error.colno}") from None
    except _Oddity as error:
        raise _unreadable(str(error)) from None
    except ValueError:
        # Python refuses to convert integers with thousands of digits.
        raise _unreadable("a number has too many digits") from None
    except RecursionError:
        raise _too_deep() from None
    if not isinstance(value, dict):
        raise _unreadable("the body must be a JSON object")
    # Includes brackets in strings, so it may trigger the check unnecessarily but never misses a body.
    if openings > MAX_DEPTH:
        _check_depth(value)
    if b"\\ud" in body or b"\\uD" in body:
        _check_surrogates(value)
    return value


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


def _parse(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _Oddity(f"the key {_shown(key)} appears twice in one object")
            seen.add(key)
    return found


def _no_constant(name: str) -> NoReturn:
    raise _Oddity(f"{name} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise _Oddity(f"the number {digits[:20]} is too large")
    return number


def _shown(key: str) -> str:
    return json.dumps(key if len(key) <= 64 else key[:64] + "…")


def _check_depth(value: Any) -> None:
    """Check the depth level by level rather than recursively."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for item in level
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, dict | list)
        ]
        if not level:
            return
    raise _too_deep()


def _check_surrogates(value: Any) -> None:
    """Refuse lone surrogates: escaped, they are valid JSON, but they can't be encoded as UTF-8."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise _unreadable("a string holds half of a surrogate pair") from None


def _too_deep() -> RequestRefused:
    return _unreadable(f"it is nested deeper than {MAX_DEPTH} levels")


def _unreadable(why: str) -> RequestRefused:
    return refuse(ProblemKind.INVALID, f"We could not parse the JSON body of your request: {why}.")
