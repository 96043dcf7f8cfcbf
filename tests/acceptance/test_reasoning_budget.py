"""A budget of reasoning on real models, in a batch, with grammars, and wherever an answer is interrupted."""

from typing import Any

import msgspec

from shared.parsers.formats import OutputFormat
from shared.protocol.request import ChatRequest, Constraint
from tests.support.engine_driver import Bench
from tests.support.engine_outputs import text_of, tokens_of
from worker.engine.protocol import EngineSequence, ReasoningLimit
from worker.grammar.planner import make_plan

BUDGET = 9
SCHEMA = '{"type":"object","properties":{"day":{"type":"integer"}},"required":["day"],"additionalProperties":false}'
JSON = make_plan(
    ChatRequest(model="", constraint=Constraint(kind="json_schema", value=SCHEMA)),
    OutputFormat(reasoning="think"),
    "<think>\n",
).grammar


def ids(bench: Bench, text: str) -> tuple[int, ...]:
    return tuple(map(int, bench.tokenizer.encode(text, add_special_tokens=False).input_ids.data[0]))


def thinking(bench: Bench, text: str, **fields: Any) -> EngineSequence:
    sequence = bench.sequence(text, **fields)
    limit = ReasoningLimit(
        tokens=BUDGET, begin="<think>", ends=("</think>",), end_tokens=ids(bench, "</think>"), opened=True
    )
    return msgspec.structs.replace(sequence, prompt=sequence.prompt + ids(bench, "<think>\n"), reasoning_limit=limit)


def test_content_follows_the_reasoning_and_both_are_whole(real_engine: Bench) -> None:
    end = ids(real_engine, "</think>")
    samplings: list[dict[str, Any]] = [{}, {"temperature": 1.0, "seed": 7, "logprobs": True, "frequency_penalty": 1.0}]
    kinds = [(grammar, sampling) for grammar in (None, JSON) for sampling in samplings]
    wanted = [thinking(real_engine, "Which day?", grammar=kind, max_tokens=40, **sampling) for kind, sampling in kinds]
    neighbour = real_engine.sequence("Tell me about bees.", max_tokens=20)
    *answers, untouched = real_engine.run([*wanted, neighbour])
    assert tokens_of(untouched) == tokens_of(real_engine.one("Tell me about bees.", max_tokens=20))
    for (grammar, _), outputs in zip(kinds, answers, strict=True):
        assert tokens_of(outputs)[BUDGET : BUDGET + len(end)] == end
        content = text_of(outputs).partition("</think>")[2]
        assert content.strip()
        if grammar is not None:
            assert isinstance(msgspec.json.decode(content)["day"], int)


def test_an_interrupted_answer_has_the_same_budget(tiny: Bench) -> None:
    for grammar in (None, JSON):
        (whole,) = tiny.run([thinking(tiny, "Which day?", grammar=grammar, max_tokens=30)])
        tokens = tokens_of(whole)
        cuts = range(1, len(tokens), 3)
        resumed = tiny.run(
            thinking(tiny, "Which day?", grammar=grammar, max_tokens=30, generated=tokens[:cut]) for cut in cuts
        )
        assert [tokens_of(outputs) for outputs in resumed] == [tokens[cut:] for cut in cuts]
