"""When sequences with a constraint start in the engine."""

from collections.abc import Iterable
from typing import cast

import pytest
from openvino_genai.py_openvino_genai import GenerationHandle

from shared.protocol.request import Constraint, Sampling
from worker.engine.arrivals import GrammarArrivals
from worker.engine.generation import Generation
from worker.engine.grammar_compiler import GrammarCompiler, GrammarError
from worker.engine.logits.rows import Readers
from worker.engine.protocol import Sequence
from worker.engine.table import RunningSequence, SequenceTable, Waiting
from worker.engine.text import Vocabulary

SECONDS = 0.2
"""What it takes to compile a grammar."""


class Compiler:
    """Stands for the :class:`GrammarCompiler`; time passes only when it compiles."""

    def __init__(self) -> None:
        self.now = 0.0
        self.compiled: list[str] = []

    def is_compiled(self, constraint: Constraint) -> bool:
        return constraint.value in self.compiled

    def compile(self, constraint: Constraint) -> None:
        self.now += SECONDS
        if constraint.value == "invalid":
            raise GrammarError("it has no root")
        self.compiled.append(constraint.value)


class Engine:
    """Sequences that start, and those that run."""

    def __init__(self, *, compiles: bool = True) -> None:
        self.compiler = Compiler()
        self.started: list[int] = []
        self.refused: list[int] = []
        self.table = SequenceTable()
        self.running = self.table.running
        compiler = cast(GrammarCompiler, self.compiler) if compiles else None
        self.arrivals = GrammarArrivals(self.table, compiler, clock=lambda: self.compiler.now)

    def generate(self) -> None:
        """Let each running sequence generate a token."""
        for running in self.running.values():
            running.generation.append((0,), ())

    def run(self, number: int, tokens: int) -> None:
        """Let a sequence without a constraint run."""
        sequence = Sequence(number=number, prompt=(1,), sampling=Sampling(), generated=(0,) * tokens)
        self._run(_generation(sequence))

    def add(self, grammars: Iterable[tuple[int, str]]) -> None:
        """Let sequences with these grammars arrive."""
        for number, grammar in grammars:
            constraint = Constraint(kind="grammar", value=grammar)
            sequence = Sequence(number=number, prompt=(1,), sampling=Sampling(), constraint=constraint)
            self.arrivals.add(_generation(sequence))

    def step(self) -> None:
        """Start what may start before a step."""

        def start(generation: Generation) -> None:
            self.started.append(generation.sequence.number)
            self._run(generation)

        def refuse(generation: Generation, error: GrammarError) -> None:
            self.refused.append(generation.sequence.number)
            self.table.remove(generation.sequence.number)

        self.arrivals.start(start, refuse)

    def _run(self, generation: Generation) -> None:
        self.table.run(RunningSequence(generation, cast(GenerationHandle, None), 0, Readers((1,))))


def _generation(sequence: Sequence) -> Generation:
    return Generation(sequence, Vocabulary([b"a"]), end_tokens=(), limit=8)


def test_running_sequences_get_nine_times_as_long_as_the_last_compilation() -> None:
    engine = Engine()
    engine.run(0, tokens=1)
    engine.add([(1, "a"), (2, "b"), (3, "c")])
    engine.step()
    assert engine.started == [1]
    engine.compiler.now += 8.9 * SECONDS
    engine.step()
    assert engine.started == [1]
    engine.compiler.now += 0.2 * SECONDS
    engine.step()
    assert engine.started == [1, 2]
    del engine.running[0]
    engine.step()
    assert engine.started == [1, 2, 3], "nothing that ran before is left"


@pytest.mark.parametrize("tokens", [None, 0])
def test_grammars_that_arrive_together_do_not_wait_for_each_others_answers(tokens: int | None) -> None:
    engine = Engine()
    if tokens is not None:
        engine.run(0, tokens)
    engine.add([(1, "a"), (2, "b")])
    engine.step()
    assert engine.started == [1, 2]


def test_a_sequence_that_needed_a_compilation_is_not_protected_from_others() -> None:
    engine = Engine()
    for number, grammar in enumerate("abc"):
        engine.add([(number, grammar)])
        engine.step()
        engine.generate()
    assert engine.started == [0, 1, 2]
    engine.add([(3, "a")])
    engine.step()
    engine.generate()
    engine.add([(4, "d"), (5, "e")])
    engine.step()
    assert engine.started == [0, 1, 2, 3], "the last compilation is not long ago, and 3 needed none"
    del engine.running[3]
    engine.step()
    assert engine.started == [0, 1, 2, 3, 4, 5]


def test_a_compiled_grammar_does_not_wait() -> None:
    engine = Engine()
    engine.run(0, tokens=1)
    engine.add([(1, "a"), (2, "b"), (3, "a")])
    engine.step()
    assert engine.started == [1, 3]
    assert engine.compiler.compiled == ["a"]


def test_an_invalid_grammar_is_refused_and_costs_its_time() -> None:
    engine = Engine()
    engine.run(0, tokens=1)
    engine.add([(1, "invalid"), (2, "b")])
    engine.step()
    assert (engine.refused, engine.started) == ([1], [])
    assert engine.table.waiting(Waiting.GRAMMAR)
    engine.compiler.now += 9.1 * SECONDS
    engine.step()
    assert engine.started == [2]
    assert not engine.table.waiting(Waiting.GRAMMAR)


def test_a_cancelled_sequence_is_not_compiled() -> None:
    engine = Engine()
    engine.add([(1, "a")])
    engine.table.remove(1)
    assert not engine.table.waiting(Waiting.GRAMMAR)
    engine.step()
    assert (engine.started, engine.compiler.compiled) == ([], [])


def test_without_a_compiler_sequences_start_at_once() -> None:
    engine = Engine(compiles=False)
    engine.run(0, tokens=1)
    engine.add([(1, "a"), (2, "b")])
    engine.step()
    assert engine.started == [1, 2]
