"""Sequences with images in the engine: when they start, and the number of their prompts' tokens."""

from typing import cast

import pytest
from openvino_genai.py_openvino_genai import GenerationHandle

from shared.protocol.request import Sampling
from worker.engine.arrivals import ImageArrivals
from worker.engine.generation import Generation
from worker.engine.logits.rows import Readers
from worker.engine.prompts import PromptCounts
from worker.engine.protocol import Ending, Output, PlacedImage, Sequence
from worker.engine.table import RunningSequence, SequenceTable, Waiting
from worker.engine.text import Vocabulary


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


SECONDS = 0.5
"""What it takes to start a sequence."""


def generation(number: int, *, image: bool = True, tokens: int = 0) -> Generation:
    images = (PlacedImage(0, 1, 1, b"rgb"),) if image else ()
    sequence = Sequence(number=number, prompt=(1,), images=images, sampling=Sampling(), generated=(0,) * tokens)
    return Generation(sequence, Vocabulary([b"a"]), end_tokens=(), limit=8)


class Engine:
    """Sequences that start, at the cost of time, and those that run."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.started: list[int] = []
        self.table = SequenceTable()
        self.running = self.table.running
        self.arrivals = ImageArrivals(self.table, clock=clock)
        self.seconds = SECONDS

    def run(self, one: Generation) -> None:
        """Let a sequence run."""
        self.table.run(RunningSequence(one, cast(GenerationHandle, None), 0, Readers((1,))))

    def add(self, *numbers: int) -> None:
        """Let sequences with images arrive."""
        for number in numbers:
            self.arrivals.add(generation(number))

    def step(self) -> None:
        """Start what may start before a step."""

        def start(one: Generation) -> None:
            self.started.append(one.sequence.number)
            self.clock.now += self.seconds
            self.run(one)

        self.arrivals.start(start)


@pytest.fixture
def engine(clock: Clock) -> Engine:
    return Engine(clock)


@pytest.mark.parametrize("image", [True, False])
def test_running_sequences_get_as_much_time_as_the_last_image_took(engine: Engine, clock: Clock, image: bool) -> None:
    engine.run(generation(0, image=image, tokens=2))
    engine.add(1, 2, 3)
    engine.step()
    assert engine.started == [1]
    clock.now += SECONDS - 0.1
    engine.step()
    assert engine.started == [1]
    clock.now += 0.2
    engine.step()
    assert engine.started == [1, 2]
    del engine.running[0]
    engine.step()
    assert engine.started == [1, 2, 3], "nothing that ran before is left"


def test_a_new_text_is_protected_before_its_first_token(engine: Engine) -> None:
    engine.add(1, 2)
    engine.run(generation(3, image=False))
    for _ in range(2):
        engine.step()
    assert engine.started == [1]


def test_sequences_that_arrive_together_do_not_wait_for_each_others_answers(engine: Engine) -> None:
    engine.add(1)
    engine.step()
    engine.running[1].generation.tokens.append(0)
    engine.add(2, 3)  # during the step of the first token
    engine.running[1].generation.tokens.append(0)
    engine.step()
    engine.step()
    assert engine.started == [1, 2, 3]
    engine.clock.now += SECONDS
    engine.add(4, 5)
    engine.step()
    engine.step()
    assert engine.started == [1, 2, 3, 4], "1 had begun when they arrived"


def test_quick_ones_that_arrive_together_share_a_step(engine: Engine) -> None:
    engine.seconds = 0.02
    engine.add(1, 2, 3, 4, 5)
    engine.step()
    assert engine.started == [1, 2, 3]
    engine.running[1].generation.tokens += [0, 0]
    engine.add(6)
    engine.step()
    assert engine.started == [1, 2, 3, 4, 5], "6 delays 1, and is not started in the same step as others"


def test_an_idle_engine_starts_the_next_one_at_once(engine: Engine) -> None:
    engine.add(1, 2, 3)
    for _ in range(4):
        engine.step()
        engine.running.clear()
    assert engine.started == [1, 2, 3]
    assert not engine.table.waiting(Waiting.IMAGES)


def test_a_cancelled_sequence_never_starts(engine: Engine) -> None:
    engine.add(1, 2, 3)
    engine.table.remove(1)
    engine.table.remove(2)
    engine.step()
    assert engine.started == [3]
    assert not engine.table.waiting(Waiting.IMAGES)


class Handle:
    """A pipeline's handle that knows the number of its input tokens, or does not."""

    def __init__(self, tokens: int | None) -> None:
        self._tokens = tokens

    def get_perf_metrics(self) -> "Handle":
        if self._tokens is None:
            raise RuntimeError("Perf metrics are not available until generation has completed.")
        return self

    def get_num_input_tokens(self) -> int:
        return self._tokens or 0


def test_last_outputs_get_the_number_of_prompt_tokens() -> None:
    counts = PromptCounts()
    counts.add(cast(GenerationHandle, Handle(82)), 0, Output(1, 5, None, "stop"))
    counts.add(cast(GenerationHandle, Handle(None)), 0, Output(2, 0, None, "exhausted"))
    counts.add(cast(GenerationHandle, Handle(82)), 30, Output(3, 35, None, "stop"))
    assert counts.waiting
    assert counts.counted() == [
        Output(1, 5, None, "stop", Ending(prompt_tokens=82)),
        Output(2, 0, None, "exhausted"),
        Output(3, 35, None, "stop", Ending(prompt_tokens=52)),
    ]
    assert not counts.waiting
    assert counts.counted() == []
