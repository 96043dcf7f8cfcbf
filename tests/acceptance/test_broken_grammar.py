"""Grammars that break the pipeline, in a process of its own: ``python -m tests.acceptance.test_broken_grammar CASES``.

The engine's grammar compiler would refuse them before, so the engine has none here.

When a step throws, GenAI's own threads now and then corrupt the heap of the process ("malloc_consolidate(): unaligned
fastbin chunk detected", or a segmentation fault), more often on a busy machine. A worker survives that, because its
engine is a process that is replaced, and it checks grammars in another one before; a test run would not. So a death by
a signal is tried again here; whatever else goes wrong fails at once.
"""

import subprocess
import sys
from collections.abc import Callable, Sequence
from unittest.mock import patch

from shared.protocol.errors import ProblemKind
from tests.support.engine_driver import TOPICS, Bench
from tests.support.engine_outputs import deltas_of, text_of, tokens_of
from tests.support.eventually import PATIENCE
from tests.support.paths import MODELS
from worker.engine.protocol import OutputGrammar, SequenceRefused, StepOutput
from worker.grammar.schema.compiler import schema_grammar

TRIES = 4
"""For each case, how many times the process may die by a signal."""

BROKEN = OutputGrammar('{"type": "nonsense"}', tagged=True)


def drain(bench: Bench) -> tuple[list[StepOutput], list[SequenceRefused]]:
    outputs: list[StepOutput] = []
    refused: list[SequenceRefused] = []
    while bench.engine.busy():
        outputs += bench.engine.step()
        refused += bench.engine.refused()
    return outputs, refused


def leaves_the_others_as_they_were(bench: Bench) -> None:
    topics = TOPICS[:4]
    alone = [tokens_of(bench.one(f"Tell me about {topic}.", max_tokens=16)) for topic in topics]
    old = [bench.sequence(f"Tell me about {topic}.", max_tokens=16) for topic in topics[:2]]
    new = [bench.sequence(f"Tell me about {topic}.", max_tokens=16) for topic in topics[2:]]
    broken = [bench.sequence("Say hi.", grammar=BROKEN) for _ in range(2)]
    for sequence in old:
        bench.engine.add(sequence)
    outputs = [output for _ in range(5) for output in bench.engine.step()]
    for sequence in (new[0], broken[0], new[1], broken[1]):
        bench.engine.add(sequence)
    later, refused = drain(bench)
    outputs += later
    assert [one.number for one in refused] == [one.number for one in broken]
    assert all(one.problem.kind is ProblemKind.INVALID for one in refused)
    made = [tokens_of([one for one in outputs if one.number == sequence.number]) for sequence in old + new]
    assert made == alone
    assert bench.engine.gauges().requests == 0


def a_constrained_neighbour_survives(bench: Bench) -> None:
    schema = '{"type":"object","properties":{"city":{"type":"string","maxLength":20}},"required":["city"]}'
    good = OutputGrammar(schema_grammar(schema))
    alone = text_of(bench.one("Name a city as JSON.", grammar=good, max_tokens=30))
    survivor = bench.sequence("Name a city as JSON.", grammar=good, max_tokens=30)
    bench.engine.add(survivor)
    outputs = [output for _ in range(6) for output in bench.engine.step()]
    bench.engine.add(bench.sequence("Say hi.", grammar=BROKEN))
    later, refused = drain(bench)
    assert len(refused) == 1
    assert text_of(outputs + later) == alone
    deltas = deltas_of(outputs + later)
    assert [delta.position for delta in deltas] == list(range(len(deltas)))


CASES: dict[str, Callable[[Bench], None]] = {
    one.__name__: one for one in (leaves_the_others_as_they_were, a_constrained_neighbour_survives)
}


def run(cases: Sequence[str]) -> None:
    """Run ``cases`` on one engine, and print the name of each that has passed."""
    with patch("worker.openvino.load.GrammarCompiler", return_value=None):
        bench = Bench(MODELS / "qwen2-byte-level-bpe")
    for case in cases:
        CASES[case](bench)
        print(case, flush=True)


def test_broken_grammars() -> None:
    left = list(CASES)
    for _ in range(TRIES * len(CASES)):
        ended = subprocess.run(
            [sys.executable, "-m", "tests.acceptance.test_broken_grammar", *left],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        passed = ended.stdout.split()
        left = [case for case in left if case not in passed]
        if ended.returncode >= 0 or not left:
            break
    assert left == [], ended.stdout + ended.stderr


if __name__ == "__main__":
    run(sys.argv[1:])
