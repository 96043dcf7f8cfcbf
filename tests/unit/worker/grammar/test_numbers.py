"""Grammars of number ranges: every number they make is in the range, and none that is whole is left out."""

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from tests.support.grammar_oracle import Texts
from worker.grammar.ebnf import Rules
from worker.grammar.schema.numbers import integer_range, number_range

_ends = st.none() | st.integers(-3000, 3000)
_decimals = st.none() | st.decimals(-30, 30, places=2)


def _texts(expression: str) -> Texts:
    return Texts(Rules().text(expression))


@given(least=_ends, most=_ends, number=st.integers(-4000, 4000))
def test_integers_are_made_exactly_within_the_range(least: int | None, most: int | None, number: int) -> None:
    expression = integer_range(least, most)
    inside = (least is None or least <= number) and (most is None or number <= most)
    if expression is None:
        assert least is not None
        assert most is not None
        assert least > most
    else:
        assert (str(number) in _texts(expression)) == inside


@given(
    least=_decimals,
    most=_decimals,
    number=st.decimals(-40, 40, places=4),
    open_below=st.booleans(),
    open_above=st.booleans(),
)
def test_decimals_are_made_exactly_within_the_range(
    least: Decimal | None, most: Decimal | None, number: Decimal, open_below: bool, open_above: bool
) -> None:
    expression = number_range(least, most, open_below=open_below, open_above=open_above)
    above = least is None or (number > least if open_below else number >= least)
    below = most is None or (number < most if open_above else number <= most)
    if expression is None:
        assert not (above and below)
    elif number not in (least, most):
        # An end itself is made with its own decimals only.
        assert (f"{number:f}" in _texts(expression)) == (above and below)


@given(least=_decimals, most=_decimals, open_below=st.booleans(), open_above=st.booleans())
def test_the_ends_are_made_unless_the_range_is_open(
    least: Decimal | None, most: Decimal | None, open_below: bool, open_above: bool
) -> None:
    expression = number_range(least, most, open_below=open_below, open_above=open_above)
    if expression is None or (least is not None and least == most):
        return
    texts = _texts(expression)
    places = max(max(-int(end.normalize().as_tuple().exponent), 0) for end in (least or Decimal(), most or Decimal()))
    for end, is_open in ((least, open_below), (most, open_above)):
        if end:
            assert (f"{end:.{places}f}" in texts) == (not is_open)
