"""When sequences with a grammar or with images start in the engine."""

from collections.abc import Iterable
from typing import cast

import pytest
from openvino_genai.py_openvino_genai import GenerationHandle

from shared.protocol.request import Sampling
from worker.engine.generation import Generation
from worker.engine.protocol import EngineSequence, GrammarError, OutputGrammar, PlacedImage
from worker.engine.text import Vocabulary
from worker.openvino.arrivals import GrammarArrivals, ImageArrivals
from worker.openvino.grammar_compiler import GrammarCompiler
from worker.openvino.logits.rows import Readers
from worker.openvino.table import RunningSequence, SequenceTable, Waiting

COMPILATION = 0.2
"""Seconds that it takes to compile a grammar."""

ENCODING = 0.5
"""Seconds that it takes to start a sequence with images."""


class Engine:
    """Sequences that arrive, start at the cost of time, and run. Time passes only when it compiles or encodes."""

    def __init__(self, *, compiles: bool = True) -> None:
        self.now = 0.0
        self.encoding = ENCODING
        self.compiled: list[str] = []
        self.started: list[int] = []
        self.refused: list[int] = []
        self.table = SequenceTable()
        self.running = self.table.running
        # The engine stands for its compiler, too.
        compiler = cast(GrammarCompiler, self) if compiles else None
        self.grammars = GrammarArrivals(self.table, compiler, clock=lambda: self.now)
        self.images = ImageArrivals(self.table, clock=lambda: self.now)

    def is_compiled(self, grammar: OutputGrammar) -> bool:
        return grammar.text in self.compiled

    def compile(self, grammar: OutputGrammar) -> None:
        self.now += COMPILATION
        if grammar.text == "invalid":
            raise GrammarError("it has no root")
        self.compiled.append(grammar.text)

    def generate(self) -> None:
        """Let each running sequence generate a token."""
        for running in self.running.values():
            running.generation.append((0,), ())

    def run(self, number: int, tokens: int, *, image: bool = False) -> None:
        """Let a sequence without a grammar run."""
        self._run(generation(number, tokens=tokens, image=image))

    def add_grammars(self, grammars: Iterable[tuple[int, str]]) -> None:
        """Let sequences with these grammars arrive."""
        for number, grammar in grammars:
            self.grammars.add(generation(number, grammar=OutputGrammar(grammar)))

    def add_images(self, *numbers: int) -> None:
        """Let sequences with images arrive."""
        for number in numbers:
            self.images.add(generation(number, image=True))

    def step(self) -> None:
        """Start what may start before a step."""

        def refuse(one: Generation, error: GrammarError) -> None:
            self.refused.append(one.sequence.number)
            self.table.remove(one.sequence.number)

        self.grammars.start(self._start, refuse)
        self.images.start(self._start)

    def _start(self, one: Generation) -> None:
        self.started.append(one.sequence.number)
        if one.sequence.images:
            self.now += self.encoding
        self._run(one)

    def _run(self, one: Generation) -> None:
        self.table.run(RunningSequence(one, cast(GenerationHandle, None), Readers((1,))))


def generation(
    number: int, *, tokens: int = 0, image: bool = False, grammar: OutputGrammar | None = None
) -> Generation:
    sequence = EngineSequence(
        number=number,
        prompt=(1,),
        images=(PlacedImage(0, 1, 1, b"rgb"),) if image else (),
        sampling=Sampling(),
        generated=(0,) * tokens,
        grammar=grammar,
    )
    return Generation(sequence, Vocabulary([b"a"]), end_tokens=(), limit=8)


def test_running_sequences_get_nine_times_as_long_as_the_last_compilation() -> None:
    engine = Engine()
    engine.run(0, tokens=1)
    engine.add_grammars([(1, "a"), (2, "b"), (3, "c")])
    engine.step()
    assert engine.started == [1]
    engine.now += 8.9 * COMPILATION
    engine.step()
    assert engine.started == [1]
    engine.now += 0.2 * COMPILATION
    engine.step()
    assert engine.started == [1, 2]
    del engine.running[0]
    engine.step()
    assert engine.started == [1, 2, 3], "nothing that ran before is left"


@pytest.mark.parametrize("tokens", [None, 0])
def test_grammars_that_arrive_together_do_not_wait_for_each_others_outputs(tokens: int | None) -> None:
    engine = Engine()
    if tokens is not None:
        engine.run(0, tokens)
    engine.add_grammars([(1, "a"), (2, "b")])
    engine.step()
    assert engine.started == [1, 2]


def test_a_sequence_that_needed_a_compilation_is_not_protected_from_others() -> None:
    engine = Engine()
    for number, grammar in enumerate("abc"):
        engine.add_grammars([(number, grammar)])
        engine.step()
        engine.generate()
    assert engine.started == [0, 1, 2]
    engine.add_grammars([(3, "a")])
    engine.step()
    engine.generate()
    engine.add_grammars([(4, "d"), (5, "e")])
    engine.step()
    assert engine.started == [0, 1, 2, 3], "the last compilation is not long ago, and 3 needed none"
    del engine.running[3]
    engine.step()
    assert engine.started == [0, 1, 2, 3, 4, 5]


def test_a_compiled_grammar_does_not_wait() -> None:
    engine = Engine()
    engine.run(0, tokens=1)
    engine.add_grammars([(1, "a"), (2, "b"), (3, "a")])
    engine.step()
    assert engine.started == [1, 3]
    assert engine.compiled == ["a"]


def test_an_invalid_grammar_is_refused_and_costs_its_time() -> None:
    engine = Engine()
    engine.run(0, tokens=1)
    engine.add_grammars([(1, "invalid"), (2, "b")])
    engine.step()
    assert (engine.refused, engine.started) == ([1], [])
    assert engine.table.waiting(Waiting.GRAMMAR)
    engine.now += 9.1 * COMPILATION
    engine.step()
    assert engine.started == [2]
    assert not engine.table.waiting(Waiting.GRAMMAR)


def test_a_cancelled_sequence_is_not_compiled() -> None:
    engine = Engine()
    engine.add_grammars([(1, "a")])
    engine.table.remove(1)
    assert not engine.table.waiting(Waiting.GRAMMAR)
    engine.step()
    assert (engine.started, engine.compiled) == ([], [])


def test_without_a_compiler_sequences_start_at_once() -> None:
    engine = Engine(compiles=False)
    engine.run(0, tokens=1)
    engine.add_grammars([(1, "a"), (2, "b")])
    engine.step()
    assert engine.started == [1, 2]


@pytest.mark.parametrize("image", [True, False])
def test_running_sequences_get_as_much_time_as_the_last_image_took(image: bool) -> None:
    engine = Engine()
    engine.run(0, tokens=2, image=image)
    engine.add_images(1, 2, 3)
    engine.step()
    assert engine.started == [1]
    engine.now += ENCODING - 0.1
    engine.step()
    assert engine.started == [1]
    engine.now += 0.2
    engine.step()
    assert engine.started == [1, 2]
    del engine.running[0]
    engine.step()
    assert engine.started == [1, 2, 3], "nothing that ran before is left"


def test_a_new_text_is_protected_before_its_first_token() -> None:
    engine = Engine()
    engine.add_images(1, 2)
    engine.run(3, tokens=0)
    for _ in range(2):
        engine.step()
    assert engine.started == [1]


def test_sequences_that_arrive_together_do_not_wait_for_each_others_outputs() -> None:
    engine = Engine()
    engine.add_images(1)
    engine.step()
    engine.running[1].generation.tokens.append(0)
    engine.add_images(2, 3)  # during the step of the first token
    engine.running[1].generation.tokens.append(0)
    engine.step()
    engine.step()
    assert engine.started == [1, 2, 3]
    engine.now += ENCODING
    engine.add_images(4, 5)
    engine.step()
    engine.step()
    assert engine.started == [1, 2, 3, 4], "1 had begun when they arrived"


def test_quick_ones_that_arrive_together_share_a_step() -> None:
    engine = Engine()
    engine.encoding = 0.02
    engine.add_images(1, 2, 3, 4, 5)
    engine.step()
    assert engine.started == [1, 2, 3]
    engine.running[1].generation.tokens += [0, 0]
    engine.add_images(6)
    engine.step()
    assert engine.started == [1, 2, 3, 4, 5], "6 delays 1, and is not started in the same step as others"


def test_an_idle_engine_starts_the_next_one_at_once() -> None:
    engine = Engine()
    engine.add_images(1, 2, 3)
    for _ in range(4):
        engine.step()
        engine.running.clear()
    assert engine.started == [1, 2, 3]
    assert not engine.table.waiting(Waiting.IMAGES)


def test_a_cancelled_sequence_with_images_never_starts() -> None:
    engine = Engine()
    engine.add_images(1, 2, 3)
    engine.table.remove(1)
    engine.table.remove(2)
    engine.step()
    assert engine.started == [3]
    assert not engine.table.waiting(Waiting.IMAGES)
