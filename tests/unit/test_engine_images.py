"""Sequences with images in the engine: when they start, and the number of their prompts' tokens."""

from typing import cast

import pytest
from openvino_genai.py_openvino_genai import GenerationHandle

from shared.protocol.request import Sampling
from worker.engine.generation import Generation
from worker.engine.images import ImageArrivals, PromptCounts
from worker.engine.interface import Ending, Output, Sequence
from worker.engine.text import Vocabulary


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def arrivals(clock: Clock) -> ImageArrivals:
    queue = ImageArrivals(clock=clock)
    for number in (1, 2, 3):
        sequence = Sequence(number=number, prompt=(1,), sampling=Sampling())
        queue.add(Generation(sequence, Vocabulary([b"a"]), end_tokens=(), limit=8))
    return queue


def test_running_sequences_get_as_much_time_as_the_last_image_took(arrivals: ImageArrivals, clock: Clock) -> None:
    started: list[int] = []

    def start(generation: Generation) -> None:
        started.append(generation.sequence.number)
        clock.now += 0.5

    arrivals.start_one(start, hurry=False)
    assert started == [1]
    clock.now += 0.4
    arrivals.start_one(start, hurry=False)
    assert started == [1]
    clock.now += 0.2
    arrivals.start_one(start, hurry=False)
    assert started == [1, 2]


def test_an_idle_engine_starts_the_next_one_at_once(arrivals: ImageArrivals, clock: Clock) -> None:
    started: list[int] = []

    def start(generation: Generation) -> None:
        started.append(generation.sequence.number)
        clock.now += 0.5

    for _ in range(4):
        arrivals.start_one(start, hurry=True)
    assert started == [1, 2, 3]
    assert not arrivals.waiting


def test_a_cancelled_sequence_never_starts(arrivals: ImageArrivals) -> None:
    started: list[int] = []
    arrivals.cancel(1)
    arrivals.cancel(2)
    arrivals.start_one(lambda generation: started.append(generation.sequence.number), hurry=True)
    assert started == [3]
    assert not arrivals.waiting


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
