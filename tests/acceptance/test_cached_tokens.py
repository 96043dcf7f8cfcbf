"""Cached prompt tokens of the real pipeline, compared with the positions that the model's graph has computed.

What is cached depends on the pipeline's schedule, not on the weights, so a tiny model shows it. The reference needs to
know nothing about the schedule: it counts all positions that are computed. Run these tests at each upgrade of OpenVINO.
"""

import itertools
import random
from collections.abc import Iterator
from typing import Any

import pytest

from shared.protocol.request import PromptScoring, Sampling
from tests.support.engine_driver import TOPICS, Bench, small_cache
from tests.support.engine_outputs import tokens_of
from tests.support.paths import MODELS
from worker.engine.protocol import EngineSequence, StepOutput
from worker.openvino.logits.operation import LogitsHook, StepInput

TINY = MODELS / "qwen2-byte-level-bpe"
TEXT = "The keeper of the lighthouse counts ships and birds, and writes to the town when the fog has gone. "
PREFILL = 192
"""Maximum number of tokens in a step. Longer prompts are computed in several."""


class Spy:
    """Counts what the graph computes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.total = 0
        """Number of positions."""
        self.starts: list[int] = []
        """Where the computed parts of sequences start."""
        evaluate = LogitsHook.evaluate

        def spy(hook: LogitsHook, outputs: Any, inputs: Any) -> bool:
            step = StepInput(*(tensor.data for tensor in inputs[1:]))
            self.total += int(step.subsequence_begins[-1])
            self.starts += step.past_lens.tolist()
            return evaluate(hook, outputs, inputs)

        monkeypatch.setattr(LogitsHook, "evaluate", spy)


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    bench = Bench(TINY, logits="on", prefill_tokens=PREFILL)
    yield bench
    assert LogitsHook.failures == 0
    LogitsHook.listener = None


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    return Spy(monkeypatch)


def ids(bench: Bench, text: str) -> tuple[int, ...]:
    return tuple(int(token) for token in bench.tokenizer.encode(text, add_special_tokens=False).input_ids.data[0])


def request(number: int, prompt: tuple[int, ...], **fields: Any) -> EngineSequence:
    sampling = Sampling(**({"temperature": 0.0, "seed": 1, "max_tokens": 4, "ignore_eos": True} | fields))
    return EngineSequence(number=number, prompt=prompt, sampling=sampling)


def first(outputs: list[StepOutput]) -> dict[int, int]:
    """Cached tokens by sequence, as its first output tells."""
    return {output.number: output.cached for output in reversed(outputs)}


def test_conversations_in_a_busy_batch(bench: Bench, spy: Spy) -> None:
    """Ten conversations of five turns, each with one turn at a time, some of them longer than a step."""
    kind = random.Random(5)
    texts = {name: ids(bench, f"{TOPICS[name]}. " + TEXT * 60) for name in range(10)}
    turns, lengths = dict.fromkeys(texts, 0), dict.fromkeys(texts, 0)
    active: dict[int, EngineSequence] = {}
    seen: dict[int, int] = {}
    numbers = itertools.count(1)
    found: list[tuple[int, int]] = []
    generated = 0
    while min(turns.values()) < 5 or active:
        for name in texts:
            if name in active or turns[name] == 5 or kind.random() > 0.3:
                continue
            turns[name] += 1
            if turns[name] != 3:  # the third turn asks for another answer to the second
                lengths[name] += kind.choice([1, 7, 31, 32, 33, 64, 120, 300])
            fields = kind.choice([{}, {}, {"logprobs": True, "top_logprobs": 2}])
            prompt, most = texts[name][: lengths[name]], kind.randrange(1, 12)
            active[name] = request(next(numbers), prompt, max_tokens=most, **fields)
            generated += most - 1
            bench.engine.add(active[name])
            seen[name] = len(spy.starts)
        begun = first(bench.engine.step())
        for name, sequence in tuple(active.items()):
            if sequence.number in begun:
                del active[name]
                found.append((len(sequence.prompt), begun[sequence.number]))
                assert begun[sequence.number] in spy.starts[seen[name] :]
    bench.finish()
    assert spy.total == sum(length - cached for length, cached in found) + generated
    assert len(found) == 50
    assert sum(cached > 0 for _, cached in found) > 25
    assert max(length - cached for length, cached in found) > PREFILL


def test_a_beam_search_counts_too(bench: Bench, spy: Spy) -> None:
    prompt = ids(bench, "Beams. " + TEXT * 6)
    for expected in (0, len(prompt) // 32 * 32):
        spy.starts.clear()
        bench.engine.add(request(1, prompt, max_tokens=3, beams=2, ignore_eos=False))
        assert first(bench.finish()) == {1: expected}
        assert spy.starts[0] == expected


def test_shared_prefixes_add_up(bench: Bench, spy: Spy) -> None:
    """Requests of one prefix, some with the same prompt, arrive while others run, and a few are resumed ones.

    No position is computed but those of uncached prompt tokens, and of all generated tokens but the last.
    """
    kind = random.Random(6)
    shared = ids(bench, "Shared. " + TEXT * 20)
    own = [
        shared[:length] + ids(bench, topic) * 3 for length, topic in zip([20, 70, 160, 300] * 4, TOPICS, strict=True)
    ]
    added: list[EngineSequence] = []
    cached: dict[int, int] = {}
    while len(added) < 60 or bench.engine.busy():
        for _ in range(kind.choice([0, 0, 1, 2, 4]) if len(added) < 60 else 0):
            added.append(request(len(added) + 1, kind.choice(own), max_tokens=kind.randrange(1, 8)))
            bench.engine.add(added[-1])
        cached = first(bench.engine.step()) | cached
    assert spy.total == sum(len(one.prompt) - cached[one.number] + (one.sampling.max_tokens or 0) - 1 for one in added)
    assert sum(cached.values()) > 1000


def test_equal_prompts_at_once(bench: Bench, spy: Spy) -> None:
    """As the choices of one request, of which one is scored: it is never cached."""
    prompt = ids(bench, "At once. " + TEXT * 6)
    scored = request(4, prompt, max_tokens=1, prompt_scoring=PromptScoring())
    for turn in range(2):
        spy.total = 0
        cached: dict[int, int] = {}
        for sequence in (*(request(number, prompt, max_tokens=1) for number in range(1, 4)), scored):
            bench.engine.add(sequence)
        while bench.engine.busy():
            cached = first(bench.engine.step()) | cached
        assert sum(len(prompt) - tokens for tokens in cached.values()) == spy.total
        assert [bool(cached[number]) for number in range(1, 5)] == [turn > 0] * 3 + [False]


def test_a_resumed_request_reports_no_more_than_its_prompt(bench: Bench, spy: Spy) -> None:
    text = "Tell me about a lighthouse. " + TEXT * 3
    whole = tokens_of(bench.one(text, max_tokens=80, ignore_eos=True))
    sequence = bench.sequence(text, generated=whole, max_tokens=90, ignore_eos=True)
    before = spy.total
    (outputs,) = bench.run([sequence])
    assert spy.total - before < len(whole)  # some of the generated tokens were cached, too
    assert outputs[0].cached == len(sequence.prompt)


def test_a_prompt_that_is_preempted_is_not_cached_by_its_own_beginning(bench: Bench, spy: Spy) -> None:
    sequence = request(1, ids(bench, "Preempted. " + TEXT * 30))
    bench.engine.add(sequence)
    assert bench.engine.step() == []
    bench.engine.preempt([1])
    bench.engine.step()
    bench.engine.preempt([])
    assert first(bench.finish()) == {1: 0}
    assert spy.total < len(sequence.prompt) + 32


@pytest.mark.parametrize("fields", [{}, {"logprobs": True, "top_logprobs": 2}, {"logit_bias": ((5, -100.0),)}])
def test_little_of_a_preempted_sequence_is_computed_again(bench: Bench, spy: Spy, fields: dict[str, Any]) -> None:
    sequence = request(1, ids(bench, f"Resumed with {len(fields)}. " + TEXT * 3), max_tokens=130, **fields)
    bench.engine.add(sequence)
    outputs = []
    for step in range(120):
        if step % 40 == 39:
            bench.engine.preempt([1])
            assert bench.engine.step() == []
            bench.engine.preempt([])
        outputs += bench.engine.step()
    outputs += bench.finish()
    assert len(outputs) == 130
    # Three times, the last block: its tokens, and the one that has not been computed yet.
    assert spy.total <= len(sequence.prompt) - outputs[0].cached + 129 + 3 * 32


def test_a_full_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipeline interrupts prompts and answers: what is reported is never more than what was not computed."""
    small_cache(monkeypatch, 24)
    listener = LogitsHook.listener
    bench = Bench(TINY, logits="on", prefill_tokens=48, max_batch=8)
    LogitsHook.listener, own = listener, LogitsHook.listener
    spy, kind = Spy(monkeypatch), random.Random(8)
    monkeypatch.setattr(LogitsHook, "listener", own)
    results: list[int] = []
    for turn in range(3):
        spy.starts.clear()
        cached: dict[int, int] = {}
        for name in range(1, 7):
            prompt = ids(bench, f"{TOPICS[name]} " + TEXT)[: 60 + 20 * turn]
            bench.engine.add(request(name, prompt, max_tokens=kind.randrange(5, 60)))
        while bench.engine.busy():
            begun = first(bench.engine.step())
            assert all(begun[name] in spy.starts for name in begun)
            cached = begun | cached
        results += cached.values()
    assert sum(tokens > 0 for tokens in results) > 5


@pytest.mark.parametrize("settings", [{"logits": "off"}, {"prefix_caching": False}])
def test_without_a_tap_or_a_cache_there_are_none(settings: dict[str, Any]) -> None:
    listener = LogitsHook.listener
    bench = Bench(TINY, **({"logits": "on"} | settings))
    for _ in range(2):
        assert {output.cached for output in bench.one(TEXT * 3)} == {0}
    LogitsHook.listener = listener
