"""The cache of compiled grammars that the engine's pipeline shares with its grammar compiler.

What OpenVINO GenAI does here is not documented: run this at each upgrade. Memory is that which malloc has handed out.
"""

import ctypes
import gc
import json

import pytest

from shared.protocol.errors import ProblemKind
from tests.support.engine_driver import Bench
from tests.support.engine_outputs import text_of
from worker.engine.protocol import OutputGrammar
from worker.grammar.schema.compiler import schema_grammar
from worker.openvino import grammar_compiler
from worker.openvino.grammar_compiler import GrammarCompiler


class _Mallinfo(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "k")
    ]


def used_bytes() -> int:
    """Return the number of bytes that malloc has handed out, without those of collected engines of other tests."""
    gc.collect()
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = _Mallinfo
    info = mallinfo()
    return int(info.uordblks + info.hblkhd)


def grammar(number: int) -> OutputGrammar:
    """Return a grammar that takes some 4 MB when it is compiled."""
    values = [{"enum": [f"{number} {index} {value}" for value in range(10)]} for index in range(30)]
    items = {f"p{number}_{index}": {"type": "array", "items": one, "minItems": 3} for index, one in enumerate(values)}
    schema = {"type": "array", "items": {"type": "object", "properties": items}}
    return OutputGrammar(schema_grammar(json.dumps(schema)))


@pytest.fixture
def bench(real_engine: Bench, monkeypatch: pytest.MonkeyPatch) -> tuple[Bench, GrammarCompiler]:
    """An engine, and the compiler of its grammars, which keeps them however slow the machine is."""
    monkeypatch.setattr(grammar_compiler, "_MAX_CACHED_SECONDS", float("inf"))
    compiler = real_engine.engine._grammar_arrivals._compiler
    assert compiler is not None
    return real_engine, compiler


def test_clearing_the_cache_frees_its_memory(bench: tuple[Bench, GrammarCompiler]) -> None:
    _, compiler = bench
    measured = []
    for _ in range(5):  # An engine that has just been loaded or left frees hundreds of megabytes, at any time.
        compiler.clear()
        before = used_bytes()
        for number in range(8):
            compiler.compile(grammar(number))
        full = used_bytes() - before
        compiler.clear()
        assert not compiler.is_compiled(grammar(0))
        measured.append((full, used_bytes() - before))
        if full > 8_000_000 and measured[-1][1] < full / 4:
            return
    pytest.fail(f"bytes of eight grammars, and after they were cleared: {measured}")


def test_the_pipeline_does_not_compile_again(bench: tuple[Bench, GrammarCompiler]) -> None:
    engine, compiler = bench
    engine.one("Say hi.", grammar=OutputGrammar('root ::= "hi"'))
    measured = []
    for number in range(100, 110, 2):  # as above
        compiler.clear()
        before = used_bytes()
        engine.one("Write JSON.", grammar=grammar(number), max_tokens=2)
        compiled = used_bytes() - before
        assert compiler.is_compiled(grammar(number))
        again = used_bytes()
        compiler.compile(grammar(number + 1))
        engine.one("Write JSON.", grammar=grammar(number + 1), max_tokens=2)
        measured.append((compiled, used_bytes() - again))
        if compiled > 1_000_000 and measured[-1][1] < 1.5 * compiled:
            return
    pytest.fail(f"bytes of a grammar, and of one that was compiled before: {measured}")


def test_a_sequence_outlives_its_grammars_place_in_the_cache(bench: tuple[Bench, GrammarCompiler]) -> None:
    engine, compiler = bench
    grammar = OutputGrammar('root ::= ("yes" | "no") (", " ("yes" | "no")){9} "."')
    alone = text_of(engine.one("Yes or no?", grammar=grammar))
    sequence = engine.sequence("Yes or no?", grammar=grammar)
    engine.engine.add(sequence)
    outputs = [output for _ in range(4) for output in engine.engine.step()]
    compiler.clear()
    assert text_of(outputs + engine.finish()) == alone


def test_a_broken_grammar_is_refused_before_it_reaches_the_pipeline(bench: tuple[Bench, GrammarCompiler]) -> None:
    engine, _ = bench
    broken = engine.sequence("Say hi.", grammar=OutputGrammar('{"type": "nonsense"}', tagged=True))
    engine.engine.add(broken)
    assert engine.finish() == []
    (refused,) = engine.engine.refused()
    assert (refused.number, refused.problem.kind) == (broken.number, ProblemKind.INVALID)
