"""Sequences that start between steps, because their grammars are compiled or their images are encoded first."""

import time
from collections import deque
from collections.abc import Callable, Collection, Mapping

import msgspec
from openvino_genai.py_openvino_genai import GenerationHandle

from worker.engine.generation import Generation
from worker.engine.grammar_compiler import GrammarCompiler, GrammarError
from worker.engine.protocol import Ending, StepOutput
from worker.engine.running import RunningSequence

_SHARE = 0.1
"""Maximum share of the time that running sequences lose to compilations."""


class GrammarArrivals:
    """New sequences with a constraint, which start between steps, once their grammars are compiled.

    A compilation stops the pipeline. Sequences that had output when a new grammar arrived are protected from it: after
    a compilation, they get nine times as long for steps before the next one. Sequences that needed a compilation
    themselves are not protected, so new grammars do not wait for each other's answers. Grammars in the cache never
    wait.
    """

    def __init__(
        self,
        running: Mapping[int, RunningSequence],
        compiler: GrammarCompiler | None,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """``running`` is the engine's table of sequences. Without a ``compiler``, the pipeline compiles grammars."""
        self._running = running
        self._compiler = compiler
        self._clock = clock
        self._waiting: dict[int, tuple[Generation, frozenset[int]]] = {}
        """By number, with the numbers of the sequences that are protected from it."""
        self._unprotected: set[int] = set()
        """Numbers of running sequences whose grammars were new."""
        self._next_at = 0.0

    @property
    def waiting(self) -> bool:
        """Whether there are sequences to start."""
        return bool(self._waiting)

    def add(self, generation: Generation) -> None:
        """Queue a sequence with a constraint."""
        with_output = (number for number, running in self._running.items() if running.generation.tokens)
        self._waiting[generation.sequence.number] = generation, frozenset(with_output) - self._unprotected

    def cancel(self, number: int) -> None:
        """Remove a sequence."""
        self._waiting.pop(number, None)

    def start(self, start: Callable[[Generation], object], refuse: Callable[[Generation, GrammarError], None]) -> None:
        """Before a step: call ``start`` with each sequence that may start, or ``refuse`` if its grammar is invalid."""
        self._unprotected &= self._running.keys()
        for number, (generation, protected) in tuple(self._waiting.items()):
            constraint = generation.sequence.constraint
            if self._compiler is not None and constraint is not None and not self._compiler.is_compiled(constraint):
                began = self._clock()
                if began < self._next_at and not protected.isdisjoint(self._running):
                    continue
                self._unprotected.add(number)
                try:
                    self._compiler.compile(constraint)
                except GrammarError as error:
                    del self._waiting[number]
                    refuse(generation, error)
                    continue
                finally:
                    ended = self._clock()
                    self._next_at = ended + (ended - began) * (1 / _SHARE - 1)
            del self._waiting[number]
            start(generation)


_BURST = 0.05
"""Seconds of encoding for which sequences that arrived together start before the same step. Small models encode several
images in that time, and a step after each would take as long again."""


class ImageArrivals:
    """New sequences with images, which start between steps.

    Encoding an image stops the pipeline. Sequences that were running when a new one arrived are protected from it:
    only one such sequence starts between two steps, and after it the running ones get as much time for steps as it
    took. Sequences that arrived together do not wait for each other's answers: one starts before each step, or several
    while they take little time.
    """

    def __init__(
        self, running: Mapping[int, RunningSequence], *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """``running`` is the engine's table of sequences."""
        self._running = running
        self._clock = clock
        self._waiting: deque[tuple[Generation, frozenset[int]]] = deque()
        """With the numbers of the sequences whose output had started before."""
        self._next_at = 0.0

    @property
    def waiting(self) -> bool:
        """Whether there are sequences to start."""
        return bool(self._waiting)

    def add(self, generation: Generation) -> None:
        """Queue a sequence."""
        # A sequence that arrived during the last step was sent before the first tokens of that step.
        protected = frozenset(number for number, running in self._running.items() if len(running.generation.tokens) > 1)
        self._waiting.append((generation, protected))

    def cancel(self, number: int) -> None:
        """Remove a sequence."""
        self._waiting = deque(entry for entry in self._waiting if entry[0].sequence.number != number)

    def start(self, start: Callable[[Generation], object]) -> None:
        """Before a step: call ``start`` with each sequence that may start now."""
        began = now = self._clock()
        while self._waiting and now - began < _BURST:
            generation, protected = self._waiting[0]
            if self._delays_others(protected) and (now < self._next_at or now > began):
                return
            self._waiting.popleft()
            start(generation)
            ended = self._clock()
            self._next_at, now = ended + (ended - now), ended

    def _delays_others(self, protected: Collection[int]) -> bool:
        """Return whether a sequence runs that has no images, or is ``protected``."""
        return any(
            number in protected or not running.generation.sequence.images for number, running in self._running.items()
        )


class PromptCounts:
    """Adds the number of prompt tokens to the last outputs of sequences with images.

    The pipeline reports it when a request has ended, or in the step after it was cancelled.
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
