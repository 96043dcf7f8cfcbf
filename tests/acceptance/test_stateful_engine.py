"""The stateful engine against the batched one, with a tiny model with random weights."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.protocol.errors import RequestRefused
from shared.protocol.request import PromptScoring
from tests.support.engine_driver import TOPICS, Bench
from tests.support.engine_outputs import deltas_of, text_of, tokens_of
from tests.support.fleet import fleet
from tests.support.paths import MODELS
from tests.support.unfused_attention import copy_unfused
from worker.engine.protocol import EngineLoadError, OutputGrammar
from worker.openvino.logits.operation import Listener, LogitsHook

MODEL = MODELS / "qwen2-byte-level-bpe"
PROMPT = "Tell me about the sea."


class Switch:
    """Several engines in one process, which has one listener to logits."""

    def __init__(self) -> None:
        self._loaded: dict[str, tuple[Bench, Listener | None]] = {}

    def __call__(self, engine: str) -> Bench:
        if engine not in self._loaded:
            bench = Bench(MODEL, engine=engine)
            self._loaded[engine] = bench, LogitsHook.listener
        bench, LogitsHook.listener = self._loaded[engine]
        return bench


@pytest.fixture(scope="module")
def engines() -> Iterator[Switch]:
    yield Switch()
    LogitsHook.listener = None


@pytest.fixture
def stateful(engines: Switch) -> Bench:
    return engines("stateful")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"logprobs": True, "top_logprobs": 3},
        {"logprobs": True, "logit_bias": ((129, -100.0),)},
        {"bad_words": ("x",)},
        {"stop": ("e",)},
        {"presence_penalty": 1.5},
        {"repetition_penalty": 1.5},
        {"temperature": 1.5, "seed": 7},
        {"grammar": OutputGrammar('root ::= ("red" | "green") (" apple" | " leaf")+')},
    ],
    ids=lambda fields: next(iter(fields), "greedy"),
)
def test_it_makes_what_the_batched_engine_makes(engines: Switch, fields: dict[str, object]) -> None:
    one, other = (engines(engine).one(PROMPT, **fields) for engine in ("stateful", "batched"))
    assert tokens_of(one)
    assert tokens_of(one) == tokens_of(other)
    assert text_of(one) == text_of(other)
    assert one[-1].reason == other[-1].reason
    logprobs, others = (
        [logprob for delta in deltas_of(outputs) for logprob in delta.logprobs] for outputs in (one, other)
    )
    assert logprobs == pytest.approx(others, abs=1e-3)
    tops, others_tops = (
        [[top.piece for top in row] for delta in deltas_of(outputs) for row in delta.top] for outputs in (one, other)
    )
    assert tops == others_tops


@pytest.mark.parametrize(("first", "then"), [("stateful", "batched"), ("batched", "stateful")])
def test_a_sequence_goes_on_with_the_other_engine(engines: Switch, first: str, then: str) -> None:
    assert engines(first).engine.engine_info.vocabulary == engines(then).engine.engine_info.vocabulary
    whole = engines(first).one(PROMPT)
    for cut in (1, 17):
        rest = engines(then).one(PROMPT, generated=tokens_of(whole)[:cut])
        assert tokens_of(rest) == tokens_of(whole)[cut:]


def test_it_reuses_nothing_of_an_earlier_prompt_and_says_so(engines: Switch) -> None:
    prompt = PROMPT * 40
    for engine, reuses in (("stateful", False), ("batched", True)):
        bench = engines(engine)
        _, again = bench.one(prompt, max_tokens=1, logprobs=True), bench.one(prompt, max_tokens=1, logprobs=True)
        assert bench.engine.engine_info.prefix_caching is (again[-1].cached > 0) is reuses


def test_sequences_run_one_after_the_other(stateful: Bench) -> None:
    assert stateful.engine.engine_info.slots == 1
    sequences = [stateful.sequence(f"Tell me about {topic}.", max_tokens=5) for topic in TOPICS[:3]]
    for sequence in sequences:
        stateful.engine.add(sequence)
    numbers = [output.number for output in stateful.finish()]
    assert numbers == sorted(numbers)
    assert set(numbers) == {sequence.number for sequence in sequences}


def test_a_cancelled_sequence_makes_room_for_the_next(stateful: Bench) -> None:
    left, waiting, served = (stateful.sequence(PROMPT, max_tokens=tokens) for tokens in (4000, 4000, 5))
    for sequence in (left, waiting, served):
        stateful.engine.add(sequence)
    while not (outputs := stateful.engine.step()):
        pass
    stateful.engine.cancel(left.number)
    stateful.engine.cancel(waiting.number)
    outputs = stateful.finish()
    assert {output.number for output in outputs} == {served.number}
    assert len(tokens_of(outputs)) == 5


def test_a_grammar_that_fails_refuses_its_sequence_only(stateful: Bench) -> None:
    broken = stateful.sequence(PROMPT, grammar=OutputGrammar("root ::= missing"))
    served = stateful.sequence(PROMPT, max_tokens=5)
    stateful.engine.add(broken)
    stateful.engine.add(served)
    outputs = stateful.finish()
    assert [refused.number for refused in stateful.engine.refused()] == [broken.number]
    assert {output.number for output in outputs} == {served.number}


@pytest.mark.parametrize(
    ("fields", "param"),
    [({"beams": 2}, "best_of"), ({"prompt_scoring": PromptScoring(top=0, param="prompt_logprobs")}, "prompt_logprobs")],
)
def test_what_it_can_not_do_is_refused_by_name(stateful: Bench, fields: dict[str, object], param: str) -> None:
    with pytest.raises(RequestRefused, match="stateful engine") as refused:
        stateful.engine.add(stateful.sequence(PROMPT, **fields))  # type: ignore[arg-type]
    assert refused.value.problem.param == param


def test_without_access_to_logits_there_are_no_log_probabilities() -> None:
    bench = Bench(MODEL, engine="stateful", logits="off")
    assert not bench.engine.engine_info.logits
    assert tokens_of(bench.one(PROMPT))
    with pytest.raises(RequestRefused, match="'logprobs'"):
        bench.engine.add(bench.sequence(PROMPT, logprobs=True))


def test_a_model_without_fused_attention_is_loaded_with_this_engine(engines: Switch, tmp_path: Path) -> None:
    unfused = copy_unfused(MODEL, tmp_path / "unfused")
    bench = Bench(unfused)
    assert bench.engine.engine_info.engine == "stateful"
    assert "No ScaledDotProductAttention operation" in bench.engine.engine_info.reason
    made = tokens_of(bench.one(PROMPT, top_logprobs=1))
    assert made == tokens_of(engines("batched").one(PROMPT))
    with pytest.raises(EngineLoadError, match="No ScaledDotProductAttention operation"):
        Bench(unfused, engine="batched")


def test_speculation_needs_the_batched_engine() -> None:
    with pytest.raises(EngineLoadError, match="does not speculate"):
        Bench(MODEL, engine="stateful", prompt_lookup=True)


def test_a_worker_with_one_slot_serves_several_choices_and_says_why_it_has_one(tmp_path: Path) -> None:
    unfused = copy_unfused(MODEL, tmp_path / "unfused")
    with fleet(tmp_path) as running:
        worker = running.worker("--model", f"tiny={unfused}")
        running.api()
        completion = running.client().chat.completions.create(
            model="tiny",
            messages=[{"role": "user", "content": PROMPT}],
            n=2,
            max_tokens=5,
            logprobs=True,
            extra_body={"ignore_eos": True},
        )
        running.until(lambda: "0/1" in running.command("status")[1], "the slot to be free")
        _, status = running.command("status")
    assert [choice.index for choice in completion.choices] == [0, 1]
    assert all(choice.logprobs and len(choice.logprobs.content or ()) == 5 for choice in completion.choices)
    assert "stateful: the batched engine can't load the model: No ScaledDotProductAttention" in status
    assert "stateful (the batched engine can't load the model: No ScaledDotProductAttention" in worker.log.read_text()
