"""Log probabilities of prompts, in the engine: those of the reference, for each sequence its own, in a busy batch."""

import itertools
import random
from collections.abc import Iterable, Iterator
from typing import Any

import numpy
import pytest

from shared.protocol.errors import RequestRefused
from shared.protocol.events import PromptLogprobs
from shared.protocol.request import PromptScoring, Sampling
from tests.support.engine_driver import options, small_cache
from tests.support.engine_outputs import tokens_of
from tests.support.logits_reference import Reference
from tests.support.paths import MODELS
from worker.engine.protocol import EngineSequence, StepOutput
from worker.openvino.engine import OpenVINOEngine
from worker.openvino.logits.operation import LogitsHook

TINY = MODELS / "qwen2-byte-level-bpe"
WORDS = 423


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference(TINY)


class Run:
    """An engine on the tiny model, its outputs and the log probabilities of prompts."""

    def __init__(self, **settings: Any) -> None:
        self.engine = OpenVINOEngine(options(str(TINY), logits="on", **settings), lambda stage: None)
        self.outputs: dict[int, list[StepOutput]] = {}
        self.prompts: dict[int, list[PromptLogprobs]] = {}

    def step(self) -> None:
        """One step. A prompt's log probabilities come before its outputs."""
        new = self.engine.step()
        for prompt in self.engine.prompts():
            assert prompt.number not in self.outputs
            self.prompts.setdefault(prompt.number, []).append(prompt.delta)
        for output in new:
            self.outputs.setdefault(output.number, []).append(output)
        assert self.engine.refused() == []

    def all(self, sequences: Iterable[EngineSequence]) -> None:
        for sequence in sequences:
            self.engine.add(sequence)
        while self.engine.busy():
            self.step()


@pytest.fixture(scope="module", params=[False, True], ids=["one token a step", "prompt lookup"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Prompts are computed in parts: a step takes 48 tokens."""
    run = Run(prefill_tokens=48, max_batch=8, prompt_lookup=request.param)
    yield run
    assert run.engine.gauges().lost_rows == 0
    assert LogitsHook.failures == 0
    LogitsHook.listener = None


numbers = iter(range(1, 1_000_000))


def sequence(prompt: tuple[int, ...], top: int | None = 2, **fields: Any) -> EngineSequence:
    scoring = None if top is None else PromptScoring(top=top)
    sampling = Sampling(**{"temperature": 0.0, "seed": 1, "max_tokens": 4, "prompt_scoring": scoring, **fields})
    return EngineSequence(number=next(numbers), prompt=prompt, sampling=sampling)


def prompt_of(length: int, seed: int = 0) -> tuple[int, ...]:
    return tuple(random.Random(seed).choices(range(WORDS), k=length))


def check(reference: Reference, one: EngineSequence, found: list[PromptLogprobs]) -> None:
    """Compare the log probabilities of a prompt, which were reported once, with the reference."""
    (prompt,) = found
    expected = reference.logprobs(one.prompt)
    assert (prompt.first[0], *(token.token for token in prompt.rest)) == one.prompt
    assert len(prompt.rest) == len(prompt.top) == len(one.prompt) - 1
    for row, token, top in zip(expected, prompt.rest, prompt.top, strict=False):
        assert token.logprob == pytest.approx(row[token.token], abs=1e-3)
        # Tokens whose values are closer than rounding may change places.
        least, most = ((row > row[token.token] + margin).sum() + 1 for margin in (1e-3, -1e-3))
        assert least <= token.rank <= most
        assert one.sampling.prompt_scoring is not None
        best = numpy.sort(row)[::-1][: one.sampling.prompt_scoring.top]
        assert [likely.logprob for likely in top] == pytest.approx(best.tolist(), abs=1e-3)
        assert [row[likely.token] for likely in top] == pytest.approx(best.tolist(), abs=1e-3)
        assert [likely.rank for likely in top] == list(range(1, len(top) + 1))


def test_a_busy_batch_gets_the_log_probabilities_of_the_reference(run: Run, reference: Reference) -> None:
    """Prompts with shared prefixes, long and short ones, and others that need no rows of their prompt."""
    kind = random.Random(18)
    shared = prompt_of(70, 1)
    wanted = []
    left = 45
    while left or run.engine.busy():
        while left and kind.random() < 0.3:
            left -= 1
            prompt = shared[: kind.choice([0, 40, 70])] + prompt_of(kind.randrange(1, 90), left % 7)
            fields: dict[str, Any] = {"max_tokens": kind.choice([0, 1, 1, 9]), "top": kind.choice([None, 0, 1, 5, 20])}
            if kind.random() < 0.4 and fields["max_tokens"]:
                fields |= {"logprobs": True, "top_logprobs": 3}
            if kind.random() < 0.3:
                fields["logit_bias"] = ((kind.randrange(WORDS), -100.0),)
            if kind.random() < 0.2:
                fields["repetition_penalty"] = 1.3
            if not fields["max_tokens"] and fields["top"] is None:
                fields["max_tokens"] = 1
            one = sequence(prompt, **fields)
            run.engine.add(one)
            if fields["top"] is not None:
                wanted.append(one)
        run.step()
    assert len(wanted) > 25
    for one in wanted:
        check(reference, one, run.prompts[one.number])
        assert run.outputs[one.number][-1].end <= (one.sampling.max_tokens or 0)
        assert run.outputs[one.number][-1].reason is not None


def test_the_answer_is_the_same_as_without(run: Run) -> None:
    for fields in ({}, {"repetition_penalty": 1.5}, {"logprobs": True, "top_logprobs": 2, "frequency_penalty": 1.0}):
        plain, scored = (sequence(prompt_of(60), top, max_tokens=12, **fields) for top in (None, 1))
        run.all([plain, scored])
        assert tokens_of(run.outputs[plain.number]) == tokens_of(run.outputs[scored.number])


def test_only_the_prompt(run: Run) -> None:
    one = sequence(prompt_of(100), max_tokens=0)
    run.all([one])
    assert [(output.end, output.delta, output.reason) for output in run.outputs[one.number]] == [(0, None, "length")]


def test_a_prompt_of_one_token_has_no_log_probability(run: Run, reference: Reference) -> None:
    one = sequence((7,), max_tokens=1)
    run.all([one])
    check(reference, one, run.prompts[one.number])


def test_the_same_prompt_again_is_computed_again(run: Run, reference: Reference) -> None:
    """The prefix cache has no rows."""
    run.all([sequence(prompt_of(90, 5), None)])
    for _ in range(3):
        same = [sequence(prompt_of(90, 5), max_tokens=1) for _ in range(3)]
        run.all(same)
        for one in same:
            check(reference, one, run.prompts[one.number])


def test_a_prompt_whose_rows_are_missing_fails_alone(
    run: Run, reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert LogitsHook.listener is not None
    steps, wants_rows = itertools.count(1), LogitsHook.listener.wants_rows
    monkeypatch.setattr(LogitsHook.listener, "wants_rows", lambda: next(steps) != 2 and wants_rows())
    good, bad = sequence(prompt_of(30, 1), max_tokens=1), sequence(prompt_of(100, 2))
    lost = run.engine.gauges().lost_rows
    for one in (good, bad):
        run.engine.add(one)
    refused, prompts = [], []
    while run.engine.busy():
        run.engine.step()
        refused += run.engine.refused()
        prompts += run.engine.prompts()
    assert [(one.number, "log probabilities" in one.problem.message) for one in refused] == [(bad.number, True)]
    assert run.engine.gauges().lost_rows == lost + 1
    check(reference, good, [prompt.delta for prompt in prompts])
    run.engine._lost_rows = 0


@pytest.mark.parametrize("prefix_caching", [True, False])
def test_preempted_sequences_keep_their_rows(
    reference: Reference, monkeypatch: pytest.MonkeyPatch, prefix_caching: bool
) -> None:
    """The KV cache is too small for the batch, so the pipeline interrupts sequences and computes them again."""
    small_cache(monkeypatch, 16)
    listener = LogitsHook.listener
    run = Run(prefix_caching=prefix_caching, prefill_tokens=48, max_batch=8)
    sequences = [
        sequence(prompt_of(70 + 9 * number, number), max_tokens=45, ignore_eos=True, logprobs=True, top_logprobs=1)
        for number in range(8)
    ]
    run.all(sequences)
    LogitsHook.listener = listener
    assert run.engine.gauges().lost_rows == 0
    for one in sequences:
        check(reference, one, run.prompts[one.number])
        assert len(tokens_of(run.outputs[one.number])) == 45


def test_where_it_can_not_be_served_it_is_refused_by_name(run: Run) -> None:
    with pytest.raises(RequestRefused, match="beam search") as refusal:
        run.engine.add(sequence((1, 2), beams=2))
    assert refusal.value.problem.param == "prompt_logprobs"
    listener = LogitsHook.listener
    plain = OpenVINOEngine(options(str(TINY), logits="off"), lambda stage: None)
    LogitsHook.listener = listener
    with pytest.raises(RequestRefused, match="no access to its logits") as refusal:
        plain.add(sequence((1, 2)))
    assert refusal.value.problem.param == "prompt_logprobs"
