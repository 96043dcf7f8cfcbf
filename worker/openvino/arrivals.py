"""Sequences that start between steps, because their grammars are compiled or their images are encoded first."""

import time
from collections.abc import Callable, Collection

from worker.engine.generation import Generation
from worker.engine.protocol import GrammarError
from worker.openvino.grammar_compiler import GrammarCompiler
from worker.openvino.table import SequenceTable, Waiting

_SHARE = 0.1
"""Maximum share of the time that running sequences lose to compilations."""

_BURST = 0.05
"""Seconds of encoding for which sequences that arrived together start before the same step. Small models encode several
images in that time, and a step after each would take as long again."""


class GrammarArrivals:
    """New sequences with a grammar, which start between steps, once their grammars are compiled.

    A compilation stops the pipeline. Sequences that had output when a new grammar arrived are protected from it: after
    a compilation, they get nine times as long for steps before the next one. Sequences that needed a compilation
    themselves are not protected, so new grammars do not wait for each other's outputs. Grammars in the cache never
    wait.
    """

    def __init__(
        self,
        table: SequenceTable,
        compiler: GrammarCompiler | None,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Without a ``compiler``, the pipeline compiles grammars."""
        self._table = table
        self._compiler = compiler
        self._clock = clock
        self._unprotected: set[int] = set()
        """Numbers of running sequences whose grammars were new."""
        self._next_at = 0.0

    def add(self, generation: Generation) -> None:
        """Queue a sequence with a grammar."""
        with_output = (number for number, running in self._table.running.items() if running.generation.tokens)
        self._table.wait(generation, Waiting.GRAMMAR, frozenset(with_output) - self._unprotected)

    def start(self, start: Callable[[Generation], object], refuse: Callable[[Generation, GrammarError], None]) -> None:
        """Before a step: call ``start`` with each sequence that may start, or ``refuse`` if its grammar is invalid."""
        running = self._table.running
        self._unprotected &= running.keys()
        for number, (generation, _, protected) in self._table.waiting(Waiting.GRAMMAR).items():
            grammar = generation.sequence.grammar
            if self._compiler is not None and grammar is not None and not self._compiler.is_compiled(grammar):
                began = self._clock()
                if began < self._next_at and not protected.isdisjoint(running):
                    continue
                self._unprotected.add(number)
                try:
                    self._compiler.compile(grammar)
                except GrammarError as error:
                    refuse(generation, error)
                    continue
                finally:
                    ended = self._clock()
                    self._next_at = ended + (ended - began) * (1 / _SHARE - 1)
            start(generation)


class ImageArrivals:
    """New sequences with images, which start between steps.

    Encoding an image stops the pipeline. Sequences that were running when a new one arrived are protected from it:
    only one such sequence starts between two steps, and after it the running ones get as much time for steps as it
    took. Sequences that arrived together do not wait for each other's outputs: one starts before each step, or several
    while they take little time.
    """

    def __init__(self, table: SequenceTable, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._table = table
        self._clock = clock
        self._next_at = 0.0

    def add(self, generation: Generation) -> None:
        """Queue a sequence."""
        # A sequence that arrived during the last step was sent before the first tokens of that step.
        running = self._table.running.items()
        protected = frozenset(number for number, sequence in running if len(sequence.generation.tokens) > 1)
        self._table.wait(generation, Waiting.IMAGES, protected)

    def start(self, start: Callable[[Generation], object]) -> None:
        """Before a step: call ``start`` with each sequence that may start now."""
        began = now = self._clock()
        for generation, _, protected in self._table.waiting(Waiting.IMAGES).values():
            if now - began >= _BURST or (self._delays_others(protected) and (now < self._next_at or now > began)):
                return
            start(generation)
            ended = self._clock()
            self._next_at, now = ended + (ended - now), ended

    def _delays_others(self, protected: Collection[int]) -> bool:
        """Return whether a sequence runs that has no images, or is ``protected``."""
        return any(
            number in protected or not running.generation.sequence.images
            for number, running in self._table.running.items()
        )
