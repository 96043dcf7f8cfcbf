"""Sequences with images in the engine: when they start, and how many tokens their prompts have."""

import time
from collections import deque
from collections.abc import Callable

import msgspec
from openvino_genai.py_openvino_genai import GenerationHandle

from worker.engine.generation import Generation
from worker.engine.interface import Ending, StepOutput


class ImageArrivals:
    """New sequences with images, which start one at a time between steps.

    Encoding an image stops the pipeline. After each, the running sequences get as much time for steps as it took.
    """

    def __init__(self, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._waiting: deque[Generation] = deque()
        self._next_at = 0.0

    @property
    def waiting(self) -> bool:
        """Whether there are sequences to start."""
        return bool(self._waiting)

    def add(self, generation: Generation) -> None:
        """Queue a sequence."""
        self._waiting.append(generation)

    def cancel(self, number: int) -> None:
        """Remove a sequence."""
        self._waiting = deque(one for one in self._waiting if one.sequence.number != number)

    def start_one(self, start: Callable[[Generation], object], *, hurry: bool) -> None:
        """Call ``start`` with the first sequence, if it is time for one. ``hurry``: no other sequence is running."""
        began = self._clock()
        if self._waiting and (hurry or began >= self._next_at):
            start(self._waiting.popleft())
            ended = self._clock()
            self._next_at = ended + (ended - began)


class PromptCounts:
    """Adds the number of prompt tokens to the last outputs of sequences with images.

    The pipeline tells it when a request has ended, or in the step after it was cancelled.
    """

    def __init__(self) -> None:
        self._uncounted: list[tuple[GenerationHandle, int, StepOutput]] = []

    @property
    def waiting(self) -> bool:
        """Whether there are outputs that :meth:`counted` has not returned yet."""
        return bool(self._uncounted)

    def add(self, handle: GenerationHandle, generated: int, output: StepOutput) -> None:
        """Queue the last output of a sequence whose request has ended or is cancelled.

        ``generated`` is the number of tokens of an earlier attempt that the pipeline got as part of the prompt.
        """
        self._uncounted.append((handle, generated, output))

    def counted(self) -> list[StepOutput]:
        """After a step: return and forget the queued outputs."""
        outputs = [_counted(*uncounted) for uncounted in self._uncounted]
        self._uncounted.clear()
        return outputs


def _counted(handle: GenerationHandle, generated: int, output: StepOutput) -> StepOutput:
    try:
        tokens = handle.get_perf_metrics().get_num_input_tokens() - generated
    except RuntimeError:
        tokens = 0  # the pipeline never ran the request
    if not tokens:
        return output
    ending = msgspec.structs.replace(output.ending or Ending(), prompt_tokens=tokens)
    return msgspec.structs.replace(output, ending=ending)
