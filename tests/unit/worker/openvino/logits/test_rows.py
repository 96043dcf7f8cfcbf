"""Rows of logits find their sequences by the blocks of the KV cache, and give log probabilities."""

from collections.abc import Iterable
from itertools import accumulate

import numpy
import openvino_genai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.protocol.request import PromptScoring, Sampling
from worker.engine.protocol import EngineSequence
from worker.openvino.logits.operation import Logits, StepInput
from worker.openvino.logits.readers import RowLost, RowReader, log_normalizer, read_rows, top
from worker.openvino.logits.rows import FollowedSequence, RowAssigner, readers_of

WIDTH = 8

Part = tuple[int, int, list[int], int]
"""What a step computes of a sequence: first position, number of positions, blocks, number of rows."""


class InPipeline(FollowedSequence):
    def __init__(
        self, length: int, sampling: Sampling | None = None, *, searching: bool = False, has_images: bool = False
    ) -> None:
        self.wished = RowReader(sampling or Sampling())
        super().__init__(self.wished if sampling else None, None, searching=searching, has_images=has_images)
        self.length = length
        self.cached: list[tuple[int, int]] = []

    @property
    def known(self) -> int:
        return self.length

    def count_cached(self, past: int, images: int) -> None:
        self.cached.append((past, images))

    def generated(self, most: int) -> tuple[int, ...]:
        return ()


class Steps:
    """Steps of some sequences. Row ``n`` is likeliest at token ``n``."""

    def __init__(self, *sequences: InPipeline) -> None:
        self.sequences = dict(enumerate(sequences))
        self.assigner = RowAssigner(self.sequences)

    def step(self, *parts: Part) -> tuple[Logits, Logits]:
        """Have rows handed out, and a token generated for each; return them as they were and with biases."""
        count = sum(rows for *_, rows in parts)
        logits = numpy.eye(max(count, 1), WIDTH, dtype=numpy.float32)
        before = logits.copy()
        begins = [0, *accumulate(size for _, size, _, _ in parts)]
        sampled = [end - back for end, (*_, rows) in zip(begins[1:], parts, strict=True) for back in range(rows, 0, -1)]
        arrays: Iterable[list[int]] = (
            sampled,
            [past for past, *_ in parts],
            begins,
            [block for _, _, blocks, _ in parts for block in blocks],
            [0, *accumulate(len(blocks) for _, _, blocks, _ in parts)],
        )
        self.assigner.on_logits(logits, StepInput(*(numpy.array(array, numpy.int64) for array in arrays)))
        return before, logits


def row_of(sequence: InPipeline) -> int | None:
    """The row that a sequence got."""
    rows = sequence.wished._rows
    return int(rows[0].argmax()) if rows else None


WISH = Sampling(top_logprobs=1)


def test_sequences_are_known_by_their_blocks() -> None:
    three = [InPipeline(5, WISH) for _ in range(3)]
    steps = Steps(*three)
    steps.step((0, 5, [1, 2], 1), (0, 5, [3, 4], 1), (0, 5, [5, 6], 1))
    assert [row_of(one) for one in three] == [0, 1, 2]
    for one in three:
        one.length = 6
    steps.step((5, 1, [5, 6], 1), (5, 1, [1, 2], 1))
    assert [row_of(one) for one in three] == [1, None, 0]


def test_a_shared_block_is_copied_when_its_sequences_part() -> None:
    two = [InPipeline(6, WISH), InPipeline(6, WISH)]
    steps = Steps(*two)
    steps.step((0, 6, [1, 2], 1), (0, 6, [1, 2], 1))
    for one in two:
        one.length = 7
    steps.step((6, 1, [1, 3], 1), (6, 1, [1, 2], 1))
    assert [row_of(one) for one in two] == [0, 1]
    for one in two:
        one.length = 8
    steps.step((7, 1, [1, 3], 1), (7, 1, [1, 2], 1))
    assert [row_of(one) for one in two] == [0, 1]


def test_a_prompt_in_parts_has_a_row_at_its_end() -> None:
    long, short = InPipeline(9, WISH), InPipeline(3, WISH)
    steps = Steps(long, short)
    steps.step((0, 4, [1], 0), (0, 3, [2], 1))
    assert (row_of(long), row_of(short)) == (None, 0)
    short.length = 4
    steps.step((3, 1, [2], 1), (4, 5, [1, 3, 4], 1))
    assert (row_of(long), row_of(short)) == (1, 0)
    assert long.cached == [(0, 0), (4, 0)]


def test_a_sequence_that_lost_its_blocks_is_known_by_its_length() -> None:
    lost, new = InPipeline(6, WISH), InPipeline(3, WISH)
    steps = Steps(lost)
    steps.step((0, 6, [1, 2], 1))
    lost.length = 7
    steps.sequences[1] = new
    steps.step((0, 7, [5, 6], 1), (0, 3, [1], 1))
    assert (row_of(lost), row_of(new)) == (0, 1)


def test_a_sequence_that_lost_its_last_blocks_keeps_its_first() -> None:
    lost, other = InPipeline(9, WISH), InPipeline(9, WISH)
    steps = Steps(lost, other)
    steps.step((0, 9, [1, 2, 3], 1), (0, 9, [4, 5, 6], 1))
    lost.length = other.length = 10
    steps.step((9, 1, [4, 5, 6], 1), (4, 6, [1, 7, 8], 1))
    assert (row_of(lost), row_of(other)) == (1, 0)


def test_the_length_of_a_prompt_with_images_is_learnt() -> None:
    shown = InPipeline(3, WISH, has_images=True)
    steps = Steps(shown)
    steps.step((4, 4, [1, 2], 0))
    steps.step((8, 7, [1, 2, 3, 4], 1))
    assert (row_of(shown), shown.started) == (0, True)
    assert shown.cached == [(4, 0), (8, 12)]


def test_beams_do_not_take_the_rows_of_others() -> None:
    beams, other = InPipeline(5, searching=True), InPipeline(6, WISH)
    steps = Steps(beams, other)
    steps.step((0, 5, [1, 2], 1))
    steps.step((5, 1, [1, 2], 1), (5, 1, [1, 3], 1), (0, 6, [4, 5], 1))
    assert row_of(other) == 2


def test_with_speculation_a_sequence_has_several_rows() -> None:
    one, two = InPipeline(5, WISH), InPipeline(5, Sampling(top_logprobs=1, logit_bias=((7, 50.0),)))
    steps = Steps(one, two)
    steps.step((0, 5, [1, 2], 1), (0, 5, [3, 4], 1))
    one.length, two.length = 6, 6
    _, after = steps.step((5, 3, [1, 2], 3), (5, 2, [3, 4], 2))
    assert [len(sequence.wished._rows) for sequence in (one, two)] == [3, 2]
    assert [row_of(one), row_of(two)] == [0, 3]
    assert after[:, 7].tolist() == [0, 0, 0, 50, 50]


def test_a_sequence_without_a_row_in_this_step_has_none() -> None:
    waiting = InPipeline(5, WISH)
    steps = Steps(waiting)
    steps.step((0, 5, [1, 2], 1))
    steps.step((5, 1, [8, 9], 1))
    with pytest.raises(RowLost, match="no row"):
        waiting.wished.take(0, 0.0)


def test_the_row_of_another_sequence_is_noticed() -> None:
    one = InPipeline(5, WISH)
    logits, _ = Steps(one).step((0, 5, [1, 2], 1))
    with pytest.raises(RowLost, match="log probability"):
        one.wished.take(0, float(logits[0, 0] - log_normalizer(logits[0])) - 0.5)


@pytest.mark.parametrize("reported", [float("nan"), float("-inf")])
def test_a_value_that_is_no_number_is_noticed(reported: float) -> None:
    one = InPipeline(5, WISH)
    Steps(one).step((0, 5, [1, 2], 1))
    with pytest.raises(RowLost):
        one.wished.take(0, reported)


def test_biases_stay_in_their_rows() -> None:
    plain, wishing = InPipeline(4), InPipeline(4, WISH)
    biased = InPipeline(4, Sampling(logit_bias=((2, -100.0), (4, 1.5))))
    before, after = Steps(plain, wishing, biased).step((0, 4, [1], 1), (0, 4, [2], 1), (0, 4, [3], 1))
    expected = before.copy()
    expected[2, 2] -= 100
    expected[2, 4] += 1.5
    assert (after == expected).all()


def test_rows_are_wanted_while_a_sequence_needs_one() -> None:
    plain, wishing = InPipeline(4), InPipeline(4, WISH)
    steps = Steps(plain, wishing)
    assert steps.assigner.wants_rows()
    steps.step((0, 4, [1], 1), (0, 4, [2], 1))
    assert steps.assigner.wants_rows()
    del steps.sequences[1]
    assert not steps.assigner.wants_rows()
    steps.sequences[2] = InPipeline(4)
    assert steps.assigner.wants_rows()


def test_log_probabilities_are_those_before_the_bias() -> None:
    one = InPipeline(4, Sampling(logprobs=True, top_logprobs=2, logit_bias=((0, -100.0),)))
    logits, biased = Steps(one).step((0, 4, [1], 1))
    after = biased[0]
    assert after[0] == logits[0, 0] - 100
    logprobs, tops = read_rows(one.wished, [1], [float(after[1]) - log_normalizer(after)], lambda token: b"%d" % token)
    assert logprobs == pytest.approx([-log_normalizer(logits[0])])
    assert [(token.piece, round(token.logprob, 3)) for token in tops[0]] == [
        (b"0", round(1 - log_normalizer(logits[0]), 3)),
        (b"1", round(-log_normalizer(logits[0]), 3)),
    ]


def test_only_biases_and_most_likely_tokens_need_rows() -> None:
    assert Sampling(logprobs=True).rows_param is None
    assert WISH.rows_param
    assert Sampling(logit_bias=((1, 1.0),)).rows_param == "logit_bias"


def test_a_scored_prompt_is_marked_and_the_mark_vanishes_modulo_the_width() -> None:
    def tokens(number: int, scoring: PromptScoring | None, sampling: Sampling) -> tuple[int, ...]:
        sequence = EngineSequence(number=1, prompt=(1, 2, 3), sampling=sampling)
        config = openvino_genai.GenerationConfig()
        return readers_of(sequence, scoring, (1, 2, 3), config, number=number, width=WIDTH).input_tokens

    marked = [tokens(number, PromptScoring(), Sampling()) for number in range(1000)]
    assert all(one[1:] == (2, 3) and one[0] % WIDTH == 1 and WIDTH < one[0] < 2**31 for one in marked)
    assert len(set(marked)) == 1000
    assert tokens(1, None, WISH) == tokens(1, None, Sampling()) == (1, 2, 3)


@given(length=st.integers(1, 1100), highest=st.integers(0, 8), count=st.integers(1, 20), seed=st.integers(0, 2**32 - 1))
def test_the_most_likely_tokens_are_those_of_a_full_sort(length: int, highest: int, count: int, seed: int) -> None:
    # Of few different values, so that many are equal.
    row = numpy.random.default_rng(seed).integers(-highest, highest + 1, length).astype(numpy.float32)
    assert top(row, count).tolist() == numpy.argsort(-row, kind="stable")[:count].tolist()
