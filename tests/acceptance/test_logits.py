"""The logits hook on the real model: right log probabilities and biases, for each sequence its own, in a busy batch.

The reference is the same model compiled by plain OpenVINO in exact precision, with a full log-softmax. Run these tests
at each upgrade of OpenVINO.
"""

import random
import resource
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy
import pytest

from shared.protocol.errors import RequestRefused
from shared.protocol.events import Delta
from shared.protocol.request import Sampling
from tests.support.engine_driver import CONTEXT, TOPICS, Bench, options, small_cache
from tests.support.engine_outputs import deltas_of, tokens_of
from tests.support.logits_reference import Reference
from tests.support.paths import MODELS
from worker.engine.protocol import EngineSequence, OutputGrammar
from worker.model.local import default_model
from worker.openvino.engine import OpenVINOEngine
from worker.openvino.export import export_gguf
from worker.openvino.logits.operation import LogitsHook

TINY = MODELS / "qwen2-byte-level-bpe"
TOP = 20


@pytest.fixture
def bench(real_engine: Bench) -> Bench:
    return real_engine


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return Reference(export_gguf(default_model(), CONTEXT, tmp_path_factory.mktemp("reference")))


def check(bench: Bench, reference: Reference, sequence: EngineSequence, deltas: list[Delta]) -> None:
    """Compare all log probabilities of an output with the reference."""
    tokens = tuple(token for delta in deltas for token in delta.tokens)
    expected = reference.logprobs(sequence.prompt + tokens)[len(sequence.prompt) - 1 :]
    position = 0
    for delta in deltas:
        for token, logprob, top in zip(delta.tokens, delta.logprobs, delta.top, strict=True):
            row = expected[position]
            assert logprob == pytest.approx(row[token], abs=1e-3)
            best = numpy.argsort(-row, kind="stable")[: sequence.sampling.top_logprobs]
            assert [one.logprob for one in top] == pytest.approx(row[best].tolist(), abs=1e-3)
            pieces = {bench.engine._vocabulary.piece(int(one)) for one in best}
            # Tokens whose values are closer than rounding may change places, also with the first one left out.
            close = {bench.engine._vocabulary.piece(int(one)) for one in numpy.flatnonzero(row >= row[best[-1]] - 1e-3)}
            assert pieces - close == set()
            assert {one.piece for one in top} <= close
            position += 1
    assert position == len(tokens) > 0


def biased(kind: random.Random, vocabulary: int) -> tuple[tuple[int, float], ...]:
    banned = {kind.randrange(vocabulary): -100.0 for _ in range(3)}
    return tuple((banned | {kind.randrange(100, vocabulary): kind.uniform(2, 12)}).items())


def test_a_busy_batch_gets_the_log_probabilities_of_the_reference(bench: Bench, reference: Reference) -> None:
    assert check_batch(bench, reference, 8, preempting=False) > 3


@pytest.mark.parametrize(
    ("preempting", "fields"),
    [(False, {}), (True, {}), (True, {"prompt_lookup": True}), (True, {"draft_model": str(TINY), "max_batch": 16})],
)
def test_a_busier_batch_on_a_tiny_model(preempting: bool, fields: dict[str, Any]) -> None:
    """With ``preempting``, half of the requests are preempted in every third step."""
    tiny = Bench(TINY, logits="on", **fields)
    assert check_batch(tiny, Reference(TINY), 30, preempting=preempting) > 10
    assert tiny.engine.gauges().lost_rows == 0


def test_tokens_found_by_prompt_lookup_have_their_own_rows() -> None:
    looking = Bench(TINY, logits="on", prompt_lookup=True)
    few = tuple(range(100, 104))  # The output repeats itself, so that the pipeline finds tokens in it.
    fields: dict[str, Any] = {"logprobs": True, "top_logprobs": 5, "allowed_token_ids": few}
    sequences = [looking.sequence(f"Tell me about {topic}.", **fields) for topic in TOPICS[:6]]
    found = 0
    for sequence, outputs in zip(sequences, looking.run(sequences), strict=True):
        check(looking, Reference(TINY), sequence, deltas_of(outputs))
        assert set(tokens_of(outputs)) <= set(few)
        found += len(tokens_of(outputs)) - len(outputs)
    assert found > 0


def test_what_would_need_the_guessed_tokens_is_refused() -> None:
    looking = Bench(TINY, logits="on", prompt_lookup=True)
    sequence = msgspec.structs.replace(looking.sequence("Hi"), bad_word_tokens=((3, 4),))
    with pytest.raises(RequestRefused, match="Words of several tokens"):
        looking.engine.add(sequence)


def check_batch(bench: Bench, reference: Reference, left: int, *, preempting: bool) -> int:
    """Run ``left`` requests of mixed kinds that arrive while others run, a third of them without any need of logits.

    Returns how many of them had their log probabilities compared with the reference.
    """
    kind, steps = random.Random(18), 0
    wanted: list[EngineSequence] = []
    outputs: dict[int, list[Delta]] = {}
    while left or bench.engine.busy():
        while left and kind.random() < 0.4:
            left -= 1
            fields: dict[str, Any] = {"max_tokens": kind.randrange(3, 16), "seed": left}
            fields["temperature"] = kind.choice([0.0, 0.0, 1.0])
            if kind.random() < 0.6:
                fields |= {"logprobs": True, "top_logprobs": kind.choice([1, 5, TOP])}
            if kind.random() < 0.3:
                fields["logit_bias"] = biased(kind, bench.engine._logits_width)
            if kind.random() < 0.2:
                fields |= {"frequency_penalty": 0.5, "repetition_penalty": kind.choice([None, 1.2])}
            text = "Tell me about " + " and ".join(kind.sample(TOPICS, kind.choice([1, 2, 2, 12]))) + "."
            sequence = bench.sequence(text, **fields)
            bench.engine.add(sequence)
            if "top_logprobs" in fields:
                wanted.append(sequence)
        if preempting:
            steps += 1
            bench.engine.preempt([one.number for one in wanted[steps // 3 % 2 :: 2]] if steps % 3 == 0 else ())
        for output in bench.engine.step():
            if output.delta is not None:
                outputs.setdefault(output.number, []).append(output.delta)
        if not left and not bench.engine.busy():
            bench.engine.preempt(())
    for sequence in wanted:
        check(bench, reference, sequence, outputs[sequence.number])
    return len(wanted)


def test_sequences_that_use_no_logits_are_unaffected_by_those_that_do(tiny: Bench) -> None:
    topics = TOPICS[:3]
    alone = [tokens_of(outputs) for outputs in tiny.run(tiny.sequence(topic, max_tokens=16) for topic in topics)]
    mixed = tiny.run(
        tiny.sequence(topic, max_tokens=16, **fields)
        for topic in topics
        for fields in ({}, {"logprobs": True, "top_logprobs": 3}, {"logit_bias": ((28, -100.0), (198, 3.0))})
    )
    assert [tokens_of(outputs) for outputs in mixed[::3]] == alone
    assert [tokens_of(outputs) for outputs in mixed[1::3]] == alone
    assert [tokens_of(outputs) for outputs in mixed[2::3]] != alone


def test_a_bias_bans_and_forces(tiny: Bench) -> None:
    free = tokens_of(tiny.one("Count to ten."))
    assert free[0] not in tokens_of(tiny.one("Count to ten.", logit_bias=((free[0], -100.0),)))
    assert set(tokens_of(tiny.one("Count to ten.", max_tokens=5, logit_bias=((304, 100.0),)))) == {304}


def test_the_same_prompt_with_different_biases_gets_each_its_own(tiny: Bench) -> None:
    ids = [300 + number for number in range(12)]
    results = tiny.run(tiny.sequence("Hi", max_tokens=6, logit_bias=((token, 100.0),)) for token in ids)
    assert [set(tokens_of(outputs)) for outputs in results] == [{token} for token in ids]


def test_a_bias_does_not_break_a_grammar(tiny: Bench) -> None:
    grammar = OutputGrammar('root ::= "red" | "blue"')
    text = b"".join(
        tiny.engine._vocabulary.piece(token)
        for token in tokens_of(tiny.one("A colour?", grammar=grammar, logit_bias=((304, 100.0),)))
    )
    assert text.removesuffix(b"<|im_end|>") in (b"red", b"blue")


def test_log_probabilities_are_those_before_bias_and_grammar(bench: Bench, reference: Reference) -> None:
    for fields in (
        {"grammar": OutputGrammar('root ::= "xyz" ("red" | "blue")')},
        {"logit_bias": ((304, 100.0),)},
    ):
        sequence = bench.sequence("A colour?", logprobs=True, top_logprobs=4, max_tokens=6, **fields)
        (outputs,) = bench.run([sequence])
        check(bench, reference, sequence, deltas_of(outputs))


def test_an_interrupted_sequence_goes_on_with_its_bias_and_log_probabilities(tiny: Bench) -> None:
    fields: dict[str, Any] = {"logprobs": True, "top_logprobs": 5, "logit_bias": ((198, -100.0),), "max_tokens": 24}
    whole = tokens_of(tiny.one("Write a poem.", **fields))
    sequence = tiny.sequence("Write a poem.", generated=whole[:10], **fields)
    (outputs,) = tiny.run([sequence])
    assert tokens_of(outputs) == whole[10:]
    resumed = EngineSequence(number=0, prompt=sequence.prompt + whole[:10], sampling=sequence.sampling)
    check(tiny, Reference(TINY), resumed, deltas_of(outputs))


@pytest.mark.parametrize("token", [-1, 10**6])
def test_a_bias_for_a_token_that_does_not_exist_is_refused(bench: Bench, token: int) -> None:
    with pytest.raises(RequestRefused, match="no token") as refusal:
        bench.engine.add(bench.sequence("Hi", logit_bias=((token, 1.0),)))
    assert refusal.value.problem.param == "logit_bias"


def test_an_engine_without_a_tap_refuses_by_name() -> None:
    off = options(str(TINY), logits="off")
    engine = OpenVINOEngine(off, lambda stage: None)
    for field, value in (("top_logprobs", 2), ("logit_bias", ((5, 1.0),))):
        sequence = EngineSequence(number=1, prompt=(1, 2), sampling=Sampling(seed=1, **{field: value}))  # type: ignore[arg-type]
        with pytest.raises(RequestRefused, match=field) as refusal:
            engine.add(sequence)
        assert refusal.value.problem.param == field


@pytest.mark.parametrize("prefix_caching", [True, False])
def test_preempted_sequences_keep_their_rows(monkeypatch: pytest.MonkeyPatch, prefix_caching: bool) -> None:
    """The KV cache is too small for the batch, so the pipeline interrupts sequences and computes them again."""
    small_cache(monkeypatch, 20)
    reference = Reference(TINY)
    bench = Bench(TINY, prefix_caching=prefix_caching, logits="on")
    sequences = [
        bench.sequence(f"Tell me about {topic}.", logprobs=True, top_logprobs=3, max_tokens=50, ignore_eos=True)
        for topic in TOPICS[:8]
    ]
    results = bench.run(sequences)
    assert bench.engine.gauges().lost_rows == 0
    for sequence, outputs in zip(sequences, results, strict=True):
        check(bench, reference, sequence, deltas_of(outputs))


def test_the_tap_runs_in_the_thread_that_steps(tiny: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """So does the inference of its output's shape: a step holds the GIL, which another thread would wait for."""
    threads: Counter[int] = Counter()

    def spied(method: Callable[..., Any]) -> Callable[..., Any]:
        def spy(*arguments: Any) -> Any:
            threads[threading.get_ident()] += 1
            return method(*arguments)

        return spy

    for name in ("evaluate", "clone_with_new_inputs"):
        monkeypatch.setattr(LogitsHook, name, spied(getattr(LogitsHook, name)))
    tiny.one("Count.", max_tokens=50, ignore_eos=True)
    assert set(threads) == {threading.get_ident()}
    assert threads.total() >= 50


def test_thousands_of_steps_leak_nothing() -> None:
    """OpenVINO keeps every clone of the operation, 22 kB in each step, if it is not always the same one."""
    engine = OpenVINOEngine(options(str(TINY), logits="on"), lambda stage: None)

    def steps(count: int) -> None:
        sampling = Sampling(temperature=0.0, seed=1, max_tokens=count, ignore_eos=True, logprobs=True, top_logprobs=2)
        engine.add(EngineSequence(number=1, prompt=(5, 6, 7), sampling=sampling))
        while engine.busy():
            engine.step()

    steps(1000)
    before = resident_bytes()
    for _ in range(4):
        steps(1000)
    assert engine.gauges().tokens >= 5_000
    assert resident_bytes() - before < 40e6


def test_a_listener_that_raises_costs_nobody_a_step(tiny: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = LogitsHook.failures

    def broken() -> bool:
        raise ValueError("on purpose")

    monkeypatch.setattr(LogitsHook.listener, "wants_rows", broken)
    try:
        assert tokens_of(tiny.one("Count to ten.")) == tokens_of(tiny.one("Count to ten."))
        assert LogitsHook.failures > failures
    finally:
        LogitsHook.failures = failures
