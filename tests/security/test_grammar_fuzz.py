"""Fuzzes the grammar process's judgement: what it accepts must not slow down the neighbours of a request.

The oracle generates under the accepted grammar on the default model's tokenizer, with other texts than those that the
judgement saw, though no longer ones, and compares CPU time with generation without a grammar in the same process. It
measures alternately, takes the lowest, and repeats before it fails, so other load on the machine makes no difference.
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.parsers.formats import OutputFormat
from shared.protocol.errors import ProblemKind, RequestRefused
from shared.protocol.request import ChatRequest, Constraint, Message
from tests.support.fuzzing import cases
from tests.support.grammar_profiler import TextProfiler
from tests.support.regexes import regexes
from worker.engine.protocol import OutputGrammar
from worker.grammar.messages import GrammarOptions
from worker.grammar.planner import make_plan
from worker.grammar.service import MAX_SLOWDOWN, GrammarProcess
from worker.model.local import default_model

COMPILE_SECONDS = 0.25
"""The default of ``--grammar-seconds``."""
TOLERANCE = 2.0
"""How much more than the limit another text under an accepted grammar may cost: the judgement sees some texts only."""

_names = st.sampled_from(["a", "b", "größe", "x y", "", "a" * 40])
_counts = st.sampled_from([0, 1, 2, 7, 50, 127, 128, 129, 1000, 20_000])
_strings = st.fixed_dictionaries(
    {"type": st.just("string")}, optional={"minLength": st.sampled_from([0, 1, 3, 30]), "maxLength": _counts}
)
_classes = st.sampled_from(["[a-z]", ".", "\\w", "[^,]", "é", "a", "[0-9]", " ", "(a|ab)"])
_quantifiers = st.sampled_from(["", "*", "+", "?", "{2}", "{3,}", "{0,9}", "{0,200}", "{130,140}"])
_regexes = regexes(_classes, _quantifiers, max_leaves=5)
_schemas = st.recursive(
    _strings
    | st.sampled_from(
        [{}, {"type": "integer"}, {"type": "number", "minimum": 0.5}, {"type": "string", "format": "uri"}]
    )
    | st.builds(lambda count: {"enum": [f"value {index}" for index in range(count)]}, st.integers(1, 60))
    | st.builds(lambda pattern: {"type": "string", "pattern": f"^{pattern}$"}, _regexes),
    lambda inner: (
        st.builds(lambda item, most: {"type": "array", "items": item, "maxItems": most}, inner, _counts)
        | st.builds(
            lambda members, required: {"type": "object", "properties": members, "required": list(members)[:required]},
            st.dictionaries(_names, inner, max_size=5),
            st.integers(0, 5),
        )
        | st.builds(
            lambda value, count: {"type": "object", "properties": {f"p{index}": value for index in range(count)}},
            inner,
            st.integers(1, 80),
        )
        | st.builds(lambda options: {"anyOf": options}, st.lists(inner, min_size=1, max_size=3))
    ),
    max_leaves=5,
)
_items = st.sampled_from(['"a"', "[a-z]", "[^x]", "r0", "r1", "r2", "[a-z]*", '("b" | [a-c]){0,300}', '"ße"'])
_bodies = st.lists(st.lists(_items, min_size=1, max_size=3).map(" ".join), min_size=1, max_size=3).map(" | ".join)
_grammars = st.builds(
    'root ::= r0 "x"\nr0 ::= {} | "y"\nr1 ::= {} | "z"\nr2 ::= {}\n'.format, _bodies, _bodies, st.just('"w"')
)
_constraints = (
    _schemas.map(lambda schema: Constraint(kind="json_schema", value=json.dumps(schema)))
    | _regexes.map(lambda regex: Constraint(kind="regex", value=regex))
    | _grammars.map(lambda grammar: Constraint(kind="grammar", value=grammar))
)


@cache
def _scratch() -> TextProfiler:
    return TextProfiler(str(default_model()))


class _Judge:
    """The worker's grammar process, with its limits and its deadline."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._process = GrammarProcess(
            GrammarOptions(engine="openvino", path=str(default_model())), max_seconds=COMPILE_SECONDS
        )
        self.accepted = 0

    def accepts(self, grammar: OutputGrammar) -> bool:
        try:
            self._runner.run(self._process.check(grammar, "response_format", ""))
        except RequestRefused as refusal:
            if refusal.problem.kind is not ProblemKind.INVALID:
                raise
            return False
        self.accepted += 1
        return True

    def stop(self) -> None:
        self._runner.run(self._process.stop())
        self._runner.close()


@pytest.fixture(scope="module")
def judge() -> Iterator[_Judge]:
    judge = _Judge()
    yield judge
    judge.stop()
    assert judge.accepted


def _grammar_of(constraint: Constraint) -> OutputGrammar | None:
    """The grammar that the engine would get for a client's, unless that can't be compiled."""
    request = ChatRequest(model="m", messages=(Message(role="user", content="Hi"),), constraint=constraint)
    with suppress(RequestRefused):
        return make_plan(request, OutputFormat(), "").grammar
    return None


@settings(max_examples=cases(15), deadline=None)
@given(_constraints)
def test_no_accepted_grammar_slows_down_its_neighbours(judge: _Judge, constraint: Constraint) -> None:
    held = _grammar_of(constraint)
    if held is None or not judge.accepts(held):
        return
    limit = TOLERANCE * MAX_SLOWDOWN
    # The judgement can't know what longer texts would cost.
    assert any(_scratch().slowdown_of_others(held, limit) <= limit for _ in range(4))
