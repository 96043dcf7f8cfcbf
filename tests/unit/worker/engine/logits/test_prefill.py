"""Cached tokens of prompts, from the positions that steps compute."""

from collections.abc import Sequence

import numpy
import pytest

from worker.engine.logits.operation import StepInput
from worker.engine.logits.prefill import Prefill, PrefillTracker

MOST = 8
"""Maximum number of tokens in a step."""


class Sequenced:
    """A sequence in the pipeline; its prompt's token at a position is that position's letter."""

    def __init__(self, number: int, prompt: str, *, searching: bool = False) -> None:
        self.number = number
        self.input_tokens = tuple(map(ord, prompt))
        self.searching = searching
        self.output = False
        self.expected: int | None = None
        self.cached: int | None = None

    def has_output(self) -> bool:
        return self.output


class Pipeline:
    """Shows steps to the counter."""

    def __init__(self) -> None:
        self.sequences: dict[int, Prefill] = {}
        self.prefills = PrefillTracker(self.sequences, MOST)

    def add(self, prompt: str, *, searching: bool = False) -> Sequenced:
        one = Sequenced(len(self.sequences) + 1, prompt, searching=searching)
        self.sequences[one.number] = one
        self.prefills.add(one)
        return one

    def step(self, *computed: tuple[int, str], output: Sequence[Sequenced] = ()) -> None:
        """Compute strings from positions. A token is sampled after each, but for those that end in an ellipsis."""
        tokens = [(ord(letter), at + offset) for at, text in computed for offset, letter in enumerate(text.rstrip("…"))]
        ends = numpy.cumsum([len(text.rstrip("…")) for _, text in computed]) - 1
        sampled = [end for end, (_, text) in zip(ends, computed, strict=True) if not text.endswith("…")]
        arrays = ([token for token, _ in tokens], [position for _, position in tokens], sampled)
        self.prefills.record_step(StepInput(*(numpy.array(array, numpy.int64) for array in arrays)))
        for one in output:
            one.output = True
        self.prefills.commit_step()


@pytest.fixture
def pipeline() -> Pipeline:
    return Pipeline()


def test_the_first_computed_position_is_the_number_of_cached_tokens(pipeline: Pipeline) -> None:
    one, other = pipeline.add("abcdef"), pipeline.add("abcxyz")
    pipeline.step((9, "r"), (4, "ef"), (0, "abcxyz"), output=[one, other])
    assert (one.cached, other.cached) == (4, 0)
    assert not pipeline.prefills.waiting


def test_neighbours_whose_positions_continue_are_told_apart(pipeline: Pipeline) -> None:
    """A running sequence at position 2, a prompt cached but for its last token, and one that goes on from it."""
    short, long = pipeline.add("abcd"), pipeline.add("abcdef")
    pipeline.step((2, "c"), (3, "d"), (4, "ef"), output=[short, long])
    assert (short.cached, long.cached) == (3, 4)


def test_a_prompt_in_parts(pipeline: Pipeline) -> None:
    one, later = pipeline.add("abcdefghijklmnopq"), pipeline.add("abcdefgh")
    pipeline.step((5, "z"), (2, "cdefghi…"))
    pipeline.step((6, "z"), (9, "jklmnop…"))
    pipeline.step((7, "z"), (16, "q"), (7, "h"), output=[one, later])
    assert (one.cached, later.cached) == (2, 7)


def test_equal_prompts_are_told_apart_by_their_order(pipeline: Pipeline) -> None:
    one, other = pipeline.add("abcd"), pipeline.add("abcd")
    pipeline.step((0, "abcd"), (2, "cd"), output=[one, other])
    assert (one.cached, other.cached) == (0, 2)


def test_a_beam_search_has_no_output_at_first(pipeline: Pipeline) -> None:
    search, other = pipeline.add("abcd", searching=True), pipeline.add("xbcd")
    pipeline.step((2, "cd"), (1, "bcd"), output=[other])
    assert (search.cached, other.cached) == (2, 1)
    assert not pipeline.prefills.waiting


def test_what_is_computed_again_was_not_cached(pipeline: Pipeline) -> None:
    """After a preemption by the pipeline, and from the start after one by the engine."""
    one = pipeline.add("abcdefghijkl")
    pipeline.step((2, "cdefghij…"))
    pipeline.step((0, "abcdefgh…"))
    one.expected = None
    pipeline.step((8, "ijkl"), output=[one])
    assert one.cached == 0


def test_a_removed_sequence_is_not_waited_for(pipeline: Pipeline) -> None:
    pipeline.add("abcd")
    other = pipeline.add("abcd")
    del pipeline.sequences[1]
    pipeline.step((2, "cd"), output=[other])
    assert other.cached == 2
    assert not pipeline.prefills.waiting


def test_a_step_that_failed_does_not_count(pipeline: Pipeline) -> None:
    one = pipeline.add("abcd")
    pipeline.prefills.record_step(StepInput(*(numpy.array([value]) for value in (ord("a"), 0, 0))))
    pipeline.step((2, "cd"), output=[one])
    assert one.cached == 2
    pipeline.prefills.commit_step()


def test_what_does_not_fit_is_not_counted(pipeline: Pipeline) -> None:
    waiting = [pipeline.add("abcd") for _ in range(3)]
    pipeline.step((2, "cd"), output=[waiting[1]])  # overtaken: the first one may have been computed in part
    assert [one.cached for one in waiting] == [0, 0, 0]

    one, other = pipeline.add("efgh"), pipeline.add("efgh")
    pipeline.step((2, "gh"), (0, "ef…"), output=[one])  # in part, although there was room in the step
    assert (one.cached, other.cached) == (2, 0)

    one, other = pipeline.add("ijkl"), pipeline.add("ijkl")
    pipeline.step((2, "kl"), (3, "l"), (2, "kl"), output=[one, other])  # a third sequence with the same end
    assert (one.cached, other.cached) == (0, 0)

    one = pipeline.add("mnopqrstuvw")
    pipeline.step((0, "xxxxxxxx…"))  # of another sequence
    pipeline.step((2, "opqrst…"), (0, "zz"))
    pipeline.step((9, "vw"), output=[one])  # not where it should go on
    assert one.cached == 0


def test_without_anything_to_count_nothing_is_waited_for() -> None:
    prefills = PrefillTracker({}, 0)
    prefills.add(Sequenced(1, "abcd"))
    assert not prefills.waiting
