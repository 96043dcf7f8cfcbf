"""Grammars of the numbers in a range, built from digit patterns in decimal notation."""

import math
from collections.abc import Iterator
from decimal import Decimal

from worker.grammar.ebnf import either, literal, repeated, sequence
from worker.grammar.json_text import DIGITS

_MAX_LAST_DIGITS = 3
_MAX_LISTED = 200
_DIGIT = "[0-9]"
_Digits = tuple[tuple[str, str], ...]
"""The lowest and the highest digit at each position."""


def integer_range(minimum: int | None, maximum: int | None) -> str | None:
    """Return an expression for the integers from ``minimum`` to ``maximum``, or None if the range is empty.

    A missing bound is replaced by 15 digits, or by ten times the other bound if that is larger.
    """
    low, high = _closed(minimum, maximum)
    return _signed(_unsigned(max(low, 0), high, 0), _unsigned(max(-high, 1), -low, 0))


def number_range(
    minimum: Decimal | None, maximum: Decimal | None, *, open_below: bool = False, open_above: bool = False
) -> str | None:
    """Return an expression for the decimal numbers from ``minimum`` to ``maximum``, or None if the range is empty.

    ``open_below`` and ``open_above`` exclude the bounds themselves. Numbers have as many decimal places as the bounds,
    or up to 15 more, and few enough that a double is not one of the excluded bounds.
    """
    places = max(_places(minimum), _places(maximum))
    low, high = _closed(_scaled(minimum, places), _scaled(maximum, places))
    open_below, open_above = open_below and minimum is not None, open_above and maximum is not None
    positive = _between(max(low, 0), high, places, open_low=open_below and low >= 0, open_high=open_above)
    negative = _between(max(-high, 0), -low, places, open_low=open_above and high <= 0, open_high=open_below)
    return _signed(positive, negative if low < 0 else [])


def multiples(
    factor: Decimal,
    minimum: Decimal | None,
    maximum: Decimal | None,
    *,
    whole: bool,
    open_below: bool,
    open_above: bool,
) -> str | None:
    """Return an expression for multiples of ``factor`` between two bounds, or None if there is none.

    ``whole``: integers only. Raises :class:`ValueError` unless these are all integers, are few, are told by their last
    digits, or are the decimals of a factor such as 0.01.
    """
    places = _places(factor)
    if not whole and places and factor.scaleb(places) == 1 and minimum is None and maximum is None:
        return f'"-"? ("0" | [1-9] [0-9]{{0,{DIGITS - 1}}}) ("." [0-9]{{1,{places}}})?'
    numerator = int(factor.scaleb(places))
    step = numerator // math.gcd(numerator, 10**places) if whole or places else numerator
    low = None if minimum is None else -int((-minimum / step).to_integral_value("ROUND_FLOOR"))
    high = None if maximum is None else int((maximum / step).to_integral_value("ROUND_FLOOR"))
    low = low + 1 if low is not None and open_below and low * step == minimum else low
    high = high - 1 if high is not None and open_above and high * step == maximum else high
    if step == 1:
        return integer_range(low, high)
    if minimum is None and maximum is None:
        for digits in range(1, _MAX_LAST_DIGITS + 1):
            if 10**digits % step == 0:
                small = [literal(str(number)) for number in range(0, 10**digits, step)]
                last = [literal(str(number).zfill(digits)) for number in range(0, 10**digits, step)]
                return sequence(
                    ['"-"?', either([*small, sequence([f"[1-9] [0-9]{{0,{DIGITS - digits}}}", either(last)])])]
                )
    if low is None or high is None or high - low >= _MAX_LISTED:
        raise ValueError
    listed = [literal(str(number * step)) for number in range(low, high + 1)]
    return either(listed) if listed else None


def _signed(positive: list[str], negative: list[str]) -> str | None:
    options = [*positive, *(sequence([literal("-"), part]) for part in negative)]
    return either(options) if options else None


def _between(low: int, high: int, places: int, *, open_low: bool, open_high: bool) -> list[str]:
    """Return the options for the decimals from ``low`` to ``high``, non-negative and in units of 10**-``places``."""
    if low > high or (low == high and (open_low or open_high)):
        return []
    point = "" if places else '"."'
    most = max(DIGITS - len(str(high)), 1) if open_high else DIGITS
    zeros = max(DIGITS - len(str(low)) - 1, 0)
    more = repeated(sequence([point, repeated(_DIGIT, 1, most)]), 0, 1)
    not_zero = sequence([point, repeated('"0"', 0, zeros), "[1-9]", repeated(_DIGIT, 0, most)])
    options = [sequence([part, more]) for part in _unsigned(low + 1 if open_low else low, high - 1, places)]
    if open_low:
        options += [sequence([part, not_zero]) for part in _unsigned(low, low, places)]
    if not open_high:
        options += _unsigned(high, high, places)
    return options


def _closed(minimum: int | None, maximum: int | None) -> tuple[int, int]:
    far = max(10**DIGITS - 1, *(10 * abs(end) for end in (minimum, maximum) if end is not None), 0)
    return -far if minimum is None else minimum, far if maximum is None else maximum


def _places(end: Decimal | None) -> int:
    if end is None:
        return 0
    exponent = end.normalize().as_tuple().exponent
    return max(-exponent, 0) if isinstance(exponent, int) else 0


def _scaled(end: Decimal | None, places: int) -> int | None:
    return None if end is None else int(end.scaleb(places))


def _unsigned(low: int, high: int, places: int) -> list[str]:
    """Return the options for the numbers from ``low`` to ``high``, with a point before the last ``places`` digits."""
    options: list[str] = []
    width = max(len(str(low)), places + 1)
    while low <= high:
        last = min(high, 10**width - 1)
        options += [_written(digits, places) for digits in _same_width(str(low).zfill(width), str(last).zfill(width))]
        low, width = last + 1, width + 1
    return options


def _same_width(low: str, high: str) -> Iterator[_Digits]:
    """Yield digit patterns whose union is the range from ``low`` to ``high``, all with the same number of digits."""
    rest = len(low) - 1
    if rest < 0:
        yield ()
    elif low[0] == high[0]:
        for digits in _same_width(low[1:], high[1:]):
            yield (low[0], high[0]), *digits
    else:
        first, last = low[0], high[0]
        if low[1:].strip("0"):
            for digits in _same_width(low[1:], "9" * rest):
                yield (first, first), *digits
            first = chr(ord(first) + 1)
        cut = bool(high[1:].strip("9"))
        until = chr(ord(last) - 1) if cut else last
        if first <= until:
            yield (first, until), *((("0", "9"),) * rest)
        if cut:
            for digits in _same_width("0" * rest, high[1:]):
                yield (last, last), *digits


def _written(digits: _Digits, places: int) -> str:
    parts = [literal(first) if first == last else f"[{first}-{last}]" for first, last in digits]
    if places:
        parts.insert(len(parts) - places, literal("."))
    return sequence(parts)
