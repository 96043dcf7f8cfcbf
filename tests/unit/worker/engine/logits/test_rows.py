"""Rows of logits find their sequences, and give log probabilities."""

from collections.abc import Iterable

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.protocol.request import Sampling
from worker.engine.logits.operation import Logits, StepInput
from worker.engine.logits.prefill import PrefillTracker
from worker.engine.logits.readers import RowLost, RowReader, log_normalizer, needs_rows, read_rows, top
from worker.engine.logits.rows import RowAssigner, new_request_id, with_salt

WIDTH = 8


class InPipeline:
    def __init__(self, token: int, position: int, sampling: Sampling | None = None) -> None:
        self._last = (token, position)
        self.reader = RowReader(sampling) if sampling else None
        self.prompt = None
        self.output: tuple[int, ...] = ()

    def token_at(self, position: int) -> int:
        raise NotImplementedError

    def generated(self, most: int) -> tuple[int, ...]:
        return self.output[-most:] if most else ()

    def last(self) -> tuple[int, int]:
        return self._last


def step(sequences: Iterable[InPipeline], rows: list[tuple[int, int]]) -> tuple[Logits, Logits]:
    """Have rows handed out; return them as they were and with biases. Row ``n`` is likeliest at token ``n``."""
    logits = numpy.eye(max(len(rows), 1), WIDTH, dtype=numpy.float32)
    before = logits.copy()
    tokens, positions = (numpy.array(column, numpy.int64) for column in zip(*rows, strict=True))
    step = StepInput(tokens, positions, numpy.arange(len(rows)))
    RowAssigner(dict(enumerate(sequences)), PrefillTracker({}, 0)).on_logits(logits, step)
    return before, logits


def row_of(sequence: InPipeline) -> int:
    """The row that a sequence got."""
    assert sequence.reader is not None
    likeliest = 1 - float(numpy.log(numpy.exp(1) + WIDTH - 1))
    for row in range(WIDTH):
        kept = sequence.reader._row
        try:
            sequence.reader.take(row, likeliest)
        except RowLost:
            sequence.reader._row = kept
        else:
            return row
    raise AssertionError("no row")


WISH = Sampling(top_logprobs=1)


def test_rows_are_identified_by_token_and_position() -> None:
    first, second, third = (InPipeline(5, position, WISH) for position in (3, 9, 4))
    step([first, second, third], [(5, 9), (5, 4), (5, 3)])
    assert [row_of(one) for one in (first, second, third)] == [2, 0, 1]


def test_equal_rows_go_to_sequences_in_order_of_addition() -> None:
    wishing = [InPipeline(5, 3, WISH if number % 2 else None) for number in range(6)]
    step(wishing, [(5, 3)] * 6)
    assert [row_of(one) for one in wishing if one.reader] == [1, 3, 5]


def test_a_sequence_without_a_row_in_this_step_has_none() -> None:
    waiting = InPipeline(5, 3, WISH)
    step([waiting], [(5, 3)])
    step([waiting], [(6, 3)])
    assert waiting.reader is not None
    with pytest.raises(RowLost, match="no row"):
        waiting.reader.take(0, 0.0)


def test_the_row_of_another_sequence_is_noticed() -> None:
    one = InPipeline(5, 3, WISH)
    logits, _ = step([one], [(5, 3)])
    assert one.reader is not None
    with pytest.raises(RowLost, match="log probability"):
        one.reader.take(0, float(logits[0, 0] - log_normalizer(logits[0])) - 0.5)


@pytest.mark.parametrize("reported", [float("nan"), float("-inf")])
def test_a_value_that_is_no_number_is_noticed(reported: float) -> None:
    one = InPipeline(5, 3, WISH)
    step([one], [(5, 3)])
    assert one.reader is not None
    with pytest.raises(RowLost):
        one.reader.take(0, reported)


def test_biases_stay_in_their_rows() -> None:
    plain, wishing = InPipeline(5, 3), InPipeline(6, 3, WISH)
    biased = InPipeline(7, 3, Sampling(logit_bias=((2, -100.0), (4, 1.5))))
    before, after = step([plain, wishing, biased], [(5, 3), (6, 3), (7, 3)])
    expected = before.copy()
    expected[2, 2] -= 100
    expected[2, 4] += 1.5
    assert (after == expected).all()


def test_rows_are_wanted_while_a_sequence_needs_one() -> None:
    sequences = {1: InPipeline(5, 3), 2: InPipeline(6, 3, WISH)}
    assigner = RowAssigner(sequences, PrefillTracker({}, 0))
    assert assigner.wants_rows()
    del sequences[2]
    assert not assigner.wants_rows()


def test_log_probabilities_are_those_before_the_bias() -> None:
    one = InPipeline(5, 3, Sampling(logprobs=True, top_logprobs=2, logit_bias=((0, -100.0),)))
    logits, biased = step([one], [(5, 3)])
    assert one.reader is not None
    after = biased[0]
    assert after[0] == logits[0, 0] - 100
    logprobs, tops = read_rows(one.reader, [1], [float(after[1]) - log_normalizer(after)], lambda token: b"%d" % token)
    assert logprobs == pytest.approx([-log_normalizer(logits[0])])
    assert [(token.piece, round(token.logprob, 3)) for token in tops[0]] == [
        (b"0", round(1 - log_normalizer(logits[0]), 3)),
        (b"1", round(-log_normalizer(logits[0]), 3)),
    ]


def test_only_biases_and_most_likely_tokens_need_rows() -> None:
    assert not needs_rows(Sampling(logprobs=True))
    assert needs_rows(WISH)
    assert needs_rows(Sampling(logit_bias=((1, 1.0),)))


def test_a_salt_marks_the_last_token_and_vanishes_modulo_the_width() -> None:
    salted = [with_salt((1, 2, 3), number, WIDTH, WISH) for number in range(1000)]
    assert all(tokens[:-1] == (1, 2) and tokens[-1] % WIDTH == 3 and WIDTH < tokens[-1] < 2**31 for tokens in salted)
    assert len(set(salted)) == 1000
    assert with_salt(salted[7], 8, WIDTH, WISH) == salted[8]
    assert with_salt((1, 2), 7, WIDTH, Sampling(repetition_penalty=1.1)) == (1, 2)
    assert with_salt((1, 2), 7, WIDTH, WISH, scored=True) == (1 + 8 * WIDTH, 2)


def test_two_sequences_never_have_the_same_salt() -> None:
    width = 2**31 // 11
    ids = iter(range(5, 100))
    assert new_request_id(ids, [], width) == 5
    assert new_request_id(ids, [16, 7, 8], width) == 9  # 6, 7 and 8 have the salts of 16, 7 and 8
    assert new_request_id(ids, [10], 0) == 10


@given(length=st.integers(1, 1100), highest=st.integers(0, 8), count=st.integers(1, 20), seed=st.integers(0, 2**32 - 1))
def test_the_most_likely_tokens_are_those_of_a_full_sort(length: int, highest: int, count: int, seed: int) -> None:
    # Of few different values, so that many are equal.
    row = numpy.random.default_rng(seed).integers(-highest, highest + 1, length).astype(numpy.float32)
    assert top(row, count).tolist() == numpy.argsort(-row, kind="stable")[:count].tolist()
