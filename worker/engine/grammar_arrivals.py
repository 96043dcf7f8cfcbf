"""Sequences with a constraint: the queue from which they start between steps, once their grammars are compiled."""

import time
from collections.abc import Callable, Mapping

from worker.engine.generation import Generation
from worker.engine.grammar_compiler import GrammarCompiler, GrammarError
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
