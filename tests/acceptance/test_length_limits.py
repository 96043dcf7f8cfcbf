"""Strings with ``maxLength`` and ``minLength`` on real models: closed in time where the hook is, cut elsewhere."""

from typing import Any

import msgspec
import pytest

from tests.support.engine_driver import Bench
from tests.support.engine_outputs import text_of, tokens_of
from tests.support.paths import MODELS
from worker.engine.protocol import EngineSequence, LengthLimits, OutputGrammar
from worker.grammar import lengths
from worker.grammar.json_text import json_mode_grammar
from worker.grammar.schema.compiler import schema_grammar

LIMITS = {"short": 7, "tags": 3, "long": 40}
SCHEMA = msgspec.json.encode(
    {
        "type": "object",
        "properties": {
            "short": {"type": "string", "minLength": 3, "maxLength": LIMITS["short"]},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": LIMITS["tags"]}, "maxItems": 3},
            "long": {"type": "string", "maxLength": LIMITS["long"]},
        },
        "required": ["short", "tags", "long"],
        "additionalProperties": False,
    }
).decode()
PROMPTS = (
    "Write a long story about the sea as JSON.",
    "Antworte auf Deutsch: über Möwen.",
    "写一个故事。",
    "Emoji: 🌊🦊?",
)


@pytest.fixture
def bench(real_engine: Bench) -> Bench:
    return real_engine


def limited(bench: Bench, text: str, generated: tuple[int, ...] = (), **sampling: Any) -> EngineSequence:
    sequence = bench.sequence(
        text,
        grammar=OutputGrammar(schema_grammar(SCHEMA)),
        generated=generated,
        max_tokens=300,
        **sampling,
    )
    return msgspec.structs.replace(sequence, length_limits=(LengthLimits("", SCHEMA),))


def test_strings_are_closed_at_their_limits(bench: Bench) -> None:
    wishes: list[dict[str, Any]] = [{}, {"temperature": 1.0, "seed": 7}, {"logprobs": True, "top_logprobs": 2}]
    results = bench.run(limited(bench, text, **wish) for text in PROMPTS for wish in wishes)
    lengths = []
    for outputs in results:
        assert outputs[-1].reason == "stop"
        value = msgspec.json.decode(text_of(outputs))
        strings = [("short", value["short"]), ("long", value["long"]), *(("tags", tag) for tag in value["tags"])]
        assert all(len(string) <= LIMITS[name] for name, string in strings)
        lengths += [len(string) == LIMITS[name] for name, string in strings]
    assert sum(lengths) > len(results)


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0, "seed": 7}])
def test_an_interrupted_answer_goes_on_with_the_same_tokens(tiny: Bench, sampling: dict[str, Any]) -> None:
    (whole,) = tiny.run([limited(tiny, PROMPTS[0], **sampling)])
    tokens = tokens_of(whole)
    cuts = range(1, len(tokens), 5)
    resumed = tiny.run(limited(tiny, PROMPTS[0], tokens[:cut], **sampling) for cut in cuts)
    for cut, outputs in zip(cuts, resumed, strict=True):
        assert outputs[-1].reason == "stop"
        if not sampling:
            assert tokens_of(outputs) == tokens[cut:]


def test_a_long_minimum_holds_wherever_the_answer_is_interrupted(tiny: Bench) -> None:
    schema = '{"type":"object","properties":{"a":{"type":"string","minLength":100,"maxLength":104}},"required":["a"]}'
    sequence = tiny.sequence(
        PROMPTS[0],
        grammar=OutputGrammar(schema_grammar(schema, minimums=True)),
        temperature=1.5,
        max_tokens=300,
    )
    for seed in range(4):
        sampling = msgspec.structs.replace(sequence.sampling, seed=seed)
        limited = msgspec.structs.replace(
            sequence, number=1000 + seed, sampling=sampling, length_limits=(LengthLimits("", schema, minimums=True),)
        )
        (whole,) = tiny.run([limited])
        tokens = tokens_of(whole)
        assert whole[-1].reason == "stop"
        assert 100 <= len(msgspec.json.decode(text_of(whole))["a"]) <= 104
        (rest,) = tiny.run([msgspec.structs.replace(limited, number=2000 + seed, generated=tokens[: len(tokens) // 2])])
        assert rest[-1].reason == "stop"


LETTERS = 'Fill this JSON object: {"letters": ["a", "a", "a", "a", "a", "a", "a", "a", ...]}'


def test_json_mode_ends_in_a_loop(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lengths, "_LOOP", 128)  # the loop would take a while to get to 1,024 characters
    grammar = OutputGrammar(json_mode_grammar())
    free, limited = (bench.sequence(LETTERS, grammar=grammar, max_tokens=200) for _ in range(2))
    going_on, ended = bench.run([free, msgspec.structs.replace(limited, length_limits=(LengthLimits("", "{}"),))])
    assert (going_on[-1].reason, ended[-1].reason) == ("length", "stop")
    assert len(set(msgspec.json.decode(text_of(ended))["letters"][:-1])) == 1


def test_without_the_hook_the_answer_is_cut() -> None:
    bench = Bench(MODELS / "qwen2-byte-level-bpe", logits="off")
    (outputs,) = bench.run([limited(bench, PROMPTS[0])])
    assert outputs[-1].reason == "length"
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(text_of(outputs))
