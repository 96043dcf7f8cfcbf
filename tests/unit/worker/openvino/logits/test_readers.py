"""Biases and masks of a sequence's logits."""

import numpy

from shared.protocol.request import Sampling
from worker.openvino.logits.readers import Bias, Penalties


def added(bias: Bias, generated: tuple[int, ...] = (), width: int = 6) -> list[float]:
    row = numpy.zeros(width, numpy.float32)
    bias.prepare(generated)
    bias.add_to(row)
    return [-numpy.inf if value < -1e8 else float(value) for value in row]


INF = float("inf")


def test_there_is_none_without_a_wish() -> None:
    assert not Bias(Sampling())
    assert Bias(Sampling(), [(1,)])
    assert Bias(Sampling(allowed_token_ids=(1,)))


def test_only_allowed_tokens_are_left_with_their_biases() -> None:
    assert added(Bias(Sampling(allowed_token_ids=(1, 3), logit_bias=((3, 2.5), (4, 100.0))))) == [
        -INF, 0, -INF, 2.5, -INF, -INF,
    ]  # fmt: skip


def test_a_word_of_one_token_is_always_masked() -> None:
    assert added(Bias(Sampling(logit_bias=((2, 100.0),)), [(2,)])) == [0, 0, -INF, 0, 0, 0]


def test_the_last_token_of_a_word_is_masked_after_the_others() -> None:
    bias = Bias(Sampling(), [(1, 2, 3), (2, 4)])
    assert bias.lookback == 2
    assert added(bias) == [0] * 6
    assert added(bias, (2,)) == [0, 0, 0, 0, -INF, 0]
    assert added(bias, (1, 2)) == [0, 0, 0, -INF, -INF, 0]
    assert added(bias, (2, 1)) == [0] * 6


PENALTIES = Sampling(presence_penalty=0.5, frequency_penalty=0.25, repetition_penalty=2.0)


def test_penalties_are_subtracted_after_the_repetition_penalty() -> None:
    row = numpy.array([1, 1, 1, -1, -1, -1], numpy.float32)
    penalties = Penalties.of(PENALTIES, (0, 3))
    bias = Bias(PENALTIES, penalties=penalties)
    for generated in ((), (1, 4), (1, 4, 4, 0)):
        bias.prepare(generated[-bias.lookback :])
    bias.add_to(row)
    assert row.tolist() == [0.5 - 0.75, 0.5 - 0.75, 1, -2, -2 - 1, -1]


def test_only_generated_tokens_have_frequency_and_presence_penalties() -> None:
    sampling = Sampling(presence_penalty=-1.5, repetition_penalty=1.0)
    assert added(Bias(sampling, penalties=Penalties.of(sampling, (0, 3))), (2, 2)) == [0, 0, 1.5, 0, 0, 0]
    assert Penalties.of(Sampling(presence_penalty=0.0, repetition_penalty=1.0), (0,)) is None


def test_excluded_tokens_are_masked() -> None:
    bias = Bias(Sampling(), limited=True)
    assert bias
    row = numpy.zeros(8, numpy.float32)
    bias.prepare(())
    bias.add_to(row)
    assert not row.any()
    bias.prepare((), numpy.array([False, False, True, True, False, True]))
    bias.add_to(row)
    assert (row > -1).tolist() == [True, True, False, False, True, False, True, True]
