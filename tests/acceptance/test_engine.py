"""The OpenVINO engine on the real model: company that does not matter, preemption, clean ends."""

import json
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest
from openvino_genai.py_openvino_genai import PipelineMetrics

from shared.protocol.errors import ProblemKind, RequestRefused
from shared.protocol.request import Sampling
from tests.support.engine_driver import CONTEXT, TOPICS, Bench, options
from tests.support.engine_outputs import deltas_of, text_of, tokens_of
from tests.support.logits_reference import Reference
from tests.support.paths import MODELS
from worker.engine.protocol import EngineLoadError, EngineSequence
from worker.openvino.engine import OpenVINOEngine

TINY = MODELS / "qwen2-byte-level-bpe"


@pytest.fixture
def bench(real_engine: Bench) -> Bench:
    return real_engine


def test_the_vocabulary_decodes_as_the_tokenizer_does(bench: Bench) -> None:
    text = "Zürich 中文字 😀👩‍👩‍👧 naïve\t\n  spaced ﷽ 한국어"
    ids = [int(token) for token in bench.tokenizer.encode(text, add_special_tokens=False).input_ids.data[0]]
    vocabulary = bench.engine._vocabulary
    assert b"".join(vocabulary.piece(token) for token in ids).decode() == text
    assert {"<|im_end|>", "<|im_start|>", "<|endoftext|>"} <= {vocabulary.text(token) for token in vocabulary.special}


def test_eight_at_once_equal_one_at_a_time(tiny: Bench) -> None:
    prompts = [f"Tell me about {topic}." for topic in TOPICS[:8]]
    alone = [tokens_of(tiny.one(prompt, max_tokens=8)) for prompt in prompts]
    together = tiny.run(tiny.sequence(prompt, max_tokens=8) for prompt in prompts)
    assert [tokens_of(outputs) for outputs in together] == alone
    assert len(set(alone)) > 4, "the prompts make no difference"
    for outputs in together:
        assert [delta.position for delta in deltas_of(outputs)] == list(range(len(outputs)))


def test_seeds_repeat_their_texts_in_the_same_batch(tiny: Bench) -> None:
    def drawn(*seeds: int) -> list[tuple[int, ...]]:
        sequences = [tiny.sequence("Tell me a story.", temperature=1.2, seed=seed, max_tokens=12) for seed in seeds]
        return [tokens_of(outputs) for outputs in tiny.run(sequences)]

    drawn(1, 2, 3)  # from here on the prompt is cached
    three, one = drawn(11, 12, 13), drawn(11)
    assert (drawn(11, 12, 13), drawn(11)) == (three, one)
    assert len(set(three)) == 3
    assert drawn(12) != one


def test_a_resumed_sequence_makes_the_identical_rest(tiny: Bench) -> None:
    whole = tiny.one("Tell me a story about a lighthouse.")
    for cut in (1, 7, 20, 39):
        rest = tiny.one("Tell me a story about a lighthouse.", generated=tokens_of(whole)[:cut])
        assert tokens_of(rest) == tokens_of(whole)[cut:]
        assert text_of(rest) == text_of(whole[cut:])
        assert deltas_of(rest)[0].position == cut
        assert rest[-1].reason == whole[-1].reason


@pytest.mark.parametrize("steps", [0, 24])
def test_preempted_sequences_make_the_same_texts(tiny: Bench, steps: int) -> None:
    """Also when they are preempted again before their first new token, and with an arrival in between."""

    def sequences() -> list[EngineSequence]:
        fields: list[dict[str, object]] = [{}, {"stop": (" light",)}, {"logprobs": True}, {"repetition_penalty": 1.2}]
        return [tiny.sequence(f"Tell me about {topic}.", max_tokens=32, **more)  # type: ignore[arg-type]
                for topic, more in zip(TOPICS, fields, strict=False)]  # fmt: skip

    whole = tiny.run(sequences())
    own = sequences()
    numbers = tuple(sequence.number for sequence in own)
    arrival, kept = tiny.sequence("Hello."), tiny.sequence("Name three colours.", presence_penalty=1.0)
    for sequence in (*own, kept):
        tiny.engine.add(sequence)
    outputs = [output for _ in range(steps) for output in tiny.engine.step()]
    for new in ((arrival,), (), ()):
        tiny.engine.preempt((*numbers, kept.number))
        for sequence in new:
            tiny.engine.add(sequence)
        outputs += (between := [*tiny.engine.step(), *tiny.engine.step()])
        assert not {output.number for output in between}.intersection(numbers)
        tiny.engine.preempt(())
    outputs += tiny.finish()
    again = [[output for output in outputs if output.number == number] for number in numbers]
    assert list(map(text_of, again)) == list(map(text_of, whole))
    assert list(map(tokens_of, again)) == list(map(tokens_of, whole))
    for one, other in zip(again, whole, strict=True):
        assert [delta.position for delta in deltas_of(one)] == [delta.position for delta in deltas_of(other)]
        logprobs = [logprob for delta in deltas_of(one) for logprob in delta.logprobs]
        assert logprobs == pytest.approx(
            [logprob for delta in deltas_of(other) for logprob in delta.logprobs], abs=1e-3
        )
    assert not tiny.engine.busy()


def test_preempted_sequences_can_be_cancelled(tiny: Bench) -> None:
    sequence = tiny.sequence("Tell me about the sea.")
    tiny.engine.add(sequence)
    tiny.engine.step()
    tiny.engine.preempt((sequence.number,))
    tiny.finish()
    assert not tiny.engine.busy()
    tiny.engine.cancel(sequence.number)
    tiny.engine.preempt(())
    assert not tiny.engine.busy()


def test_a_beam_search_brings_its_best_texts_in_order(tiny: Bench) -> None:
    (output,) = tiny.one("Name three colours.", beams=4, max_tokens=16, logprobs=True, alternatives=3)
    assert output.ending is not None
    found = output.ending.alternatives
    assert len(found) == 3
    scores = [one.score for one in found]
    assert scores == sorted(scores, reverse=True)
    assert len({one.text for one in found}) == 3
    assert all(len(one.tokens) == len(one.logprobs) == len(one.pieces) for one in found)
    greedy = sum(
        sum(delta.logprobs) for delta in deltas_of(tiny.one("Name three colours.", max_tokens=16, logprobs=True))
    )
    assert sum(found[0].logprobs) >= greedy
    assert tiny.engine.gauges().requests == 0


def test_speculation_is_refused_where_there_is_none(bench: Bench) -> None:
    with pytest.raises(RequestRefused, match="without speculation"):
        bench.one("Hi", num_assistant_tokens=3)


def test_prompt_lookup_makes_the_same_text(tiny: Bench) -> None:
    text = "Repeat after me: the quick brown fox jumps over the lazy dog. The quick brown fox"
    expected = tiny.one(text)
    looking = Bench(TINY, prompt_lookup=True)
    (outputs,) = looking.run([looking.sequence(text, max_ngram_size=2)])
    assert tokens_of(outputs) == tokens_of(expected)
    assert text_of(outputs) == text_of(expected)
    assert len(outputs) < len(tokens_of(outputs)), "no token was looked up"


def test_a_draft_model_serves_greedy_and_sampled_requests(tiny: Bench) -> None:
    drafting = Bench(TINY, draft_model=str(TINY))
    greedy = drafting.sequence("Tell me about tea.", num_assistant_tokens=4)
    sampled = [drafting.sequence("Tell me a story.", temperature=0.9, seed=seed, max_tokens=20) for seed in range(2)]
    made, *others = drafting.run([greedy, *sampled])
    assert drafting.engine.refused() == []
    assert tokens_of(made) == tokens_of(tiny.one("Tell me about tea."))
    assert len(made) < len(tokens_of(made)), "no token of the draft was taken"
    assert all(outputs[-1].reason for outputs in others)


@pytest.mark.parametrize(
    ("field", "value"), [("presence_penalty", 1.0), ("ignore_eos", True), ("min_tokens", 5), ("bad_words", ("a",))]
)
def test_what_beam_search_would_ignore_is_refused(bench: Bench, field: str, value: object) -> None:
    with pytest.raises(RequestRefused) as refusal:
        bench.one("Hi", beams=2, **{field: value})
    assert refusal.value.problem.param == field


@pytest.mark.parametrize(
    "penalties", [{"presence_penalty": 1.5, "frequency_penalty": 0.7}, {"frequency_penalty": -0.4}]
)
def test_penalties_are_subtracted_and_count_what_was_generated_before_an_interruption(
    tiny: Bench, penalties: dict[str, float]
) -> None:
    below_0 = tuple((token, -50.0) for token in range(len(tiny.engine._vocabulary)))
    sequence = tiny.sequence("Tell me a story about a lighthouse.", logit_bias=below_0, **penalties)  # type: ignore[arg-type]
    (whole,) = tiny.run([sequence])
    tokens = tokens_of(whole)
    rows = Reference(TINY).logprobs(sequence.prompt + tokens)[len(sequence.prompt) - 1 :]
    for position, token in enumerate(tokens):
        for earlier, times in Counter(tokens[:position]).items():
            rows[position][earlier] -= penalties.get("presence_penalty", 0) + penalties["frequency_penalty"] * times
        assert rows[position].max() - rows[position][token] < 1e-3, position
    steps = tiny.engine.gauges().steps
    rest = tiny.one("Tell me a story about a lighthouse.", generated=tokens[:12], **penalties)
    assert tokens_of(rest) == tokens[12:]
    assert deltas_of(rest)[0].position == 12
    assert tiny.engine.gauges().steps - steps < len(tokens), "tokens were generated again"


def test_a_beginning_that_can_not_be_made_again_is_gone_on_from(tiny: Bench) -> None:
    other = tokens_of(tiny.one("Name three colours."))[:12]
    looking = Bench(TINY, prompt_lookup=True)  # the pipeline applies penalties itself
    rest = looking.one("Tell me a story about a lighthouse.", generated=other, presence_penalty=1.5)
    assert deltas_of(rest)[0].position == 12
    assert rest[-1].reason in ("stop", "length")


def test_a_complete_sequence_that_is_resumed_only_ends(bench: Bench) -> None:
    whole = bench.one("What is the capital of France?")
    assert whole[-1].reason == "stop"
    (ending,) = bench.one("What is the capital of France?", generated=tokens_of(whole))
    assert (ending.delta, ending.reason) == (None, "stop")


def test_stop_strings_end_the_text_and_free_the_slot(bench: Bench) -> None:
    whole = text_of(bench.one("What is the capital of France?"))
    at = whole.index("Paris")
    outputs = bench.one("What is the capital of France?", stop=("of France is Par",))
    assert text_of(outputs) == whole[: whole.index("of France is")]
    assert outputs[-1].reason == "stop"
    kept = bench.one("What is the capital of France?", stop=("Par",), include_stop=True)
    assert text_of(kept) == whole[: at + 3]
    assert bench.engine.gauges().requests == 0


def test_a_folders_generation_config_means_what_it_means_in_transformers(tiny: Bench, tmp_path: Path) -> None:
    """A list of end tokens, and stop strings, end texts; beams, a temperature of 0 and a short length do no harm."""
    question = "Tell me a story about a lighthouse."
    whole = tiny.one(question)
    folder = tmp_path / "stated"
    shutil.copytree(TINY, folder)
    tokens, text = tokens_of(whole), text_of(whole)
    end, stop = tokens[5], text[len(text) // 2 :][:2]
    stated = {"do_sample": True, "temperature": 0.0, "top_k": -1, "max_length": 3, "num_beams": 4}
    (folder / "generation_config.json").write_text(json.dumps(stated | {"eos_token_id": [7, end]}))
    outputs = Bench(folder).one(question)
    assert (tokens_of(outputs), outputs[-1].reason) == (tokens[: tokens.index(end) + 1], "stop")
    (folder / "generation_config.json").write_text(json.dumps(stated | {"stop_strings": [stop]}))
    outputs = Bench(folder).one(question)
    assert (text_of(outputs), outputs[-1].reason, outputs[-1].ending) == (text[: text.index(stop)], "stop", None)


def test_length_and_stop_tokens_end_an_answer(bench: Bench) -> None:
    outputs = bench.one("What is the capital of France?", max_tokens=3)
    assert (len(tokens_of(outputs)), outputs[-1].reason) == (3, "length")
    third = tokens_of(outputs)[2]
    stopped = bench.one("What is the capital of France?", stop_token_ids=(third,))
    assert tokens_of(stopped) == tokens_of(outputs)
    assert text_of(stopped) == text_of(outputs[:2])
    assert stopped[-1].reason == "stop"


def test_ignore_eos_goes_on_but_heeds_other_stop_tokens(bench: Bench) -> None:
    outputs = bench.one("What is the capital of France?", ignore_eos=True, max_tokens=30)
    assert len(tokens_of(outputs)) == 30
    seen = tokens_of(outputs)[5]
    stopped = bench.one("What is the capital of France?", ignore_eos=True, stop_token_ids=(seen,), max_tokens=30)
    assert tokens_of(stopped) == tokens_of(outputs)[: tokens_of(outputs).index(seen) + 1]


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_a_cancelled_sequence_frees_its_slot_and_its_cache(tiny: Bench, steps: int) -> None:
    sequence = tiny.sequence("Count. " * 400, max_tokens=500)
    tiny.engine.add(sequence)
    for _ in range(steps):
        tiny.engine.step()
    tiny.engine.cancel(sequence.number)
    assert tiny.finish() == []
    gauges = tiny.engine.gauges()
    assert (gauges.requests, gauges.cache_usage) == (0, 0.0)


def test_a_cancelled_neighbour_changes_nothing(tiny: Bench) -> None:
    alone = tokens_of(tiny.one("Tell me about tea.", max_tokens=16))
    stays, goes = tiny.sequence("Tell me about tea.", max_tokens=16), tiny.sequence("Tell me about maps.")
    tiny.engine.add(goes)
    tiny.engine.add(stays)
    outputs = [output for _ in range(6) for output in tiny.engine.step()]
    tiny.engine.cancel(goes.number)
    after = tiny.finish()
    assert {output.number for output in after} == {stays.number}
    assert tokens_of([output for output in outputs + after if output.number == stays.number]) == alone


def test_what_the_engine_cannot_do_is_refused_by_name(bench: Bench) -> None:
    for field, value in [("temperature", -1.0), ("top_p", -0.1), ("min_p", 1.0), ("top_k", -1), ("seed", -1),
                         ("max_tokens", -1), ("repetition_penalty", 0.0), ("frequency_penalty", 2.5),
                         ("stop_token_ids", (-1,))]:  # fmt: skip
        with pytest.raises(RequestRefused) as caught:
            bench.engine.add(bench.sequence("Say hi.", **{field: value}))  # type: ignore[arg-type]
        assert caught.value.problem.param == field
    sampling = Sampling(max_tokens=5)
    for prompt, kind in [((), ProblemKind.INVALID), ((-1,), ProblemKind.INVALID), ((10**6,), ProblemKind.INVALID),
                         ((5,) * CONTEXT, ProblemKind.CONTEXT_LENGTH)]:  # fmt: skip
        with pytest.raises(RequestRefused) as caught:
            bench.engine.add(EngineSequence(number=999_999, prompt=prompt, sampling=sampling))
        assert caught.value.problem.kind is kind
    assert not bench.engine.busy()


def test_the_time_between_steps_is_counted_apart_from_the_models(tiny: Bench) -> None:
    before = tiny.engine.gauges()
    began = time.perf_counter()
    for number in range(2):
        if number:
            time.sleep(0.3)  # at rest, which is no time between steps
        tiny.one("Tell me about tea.", max_tokens=8)
    elapsed = time.perf_counter() - began - 0.3
    after = tiny.engine.gauges()
    computing, between = after.step_seconds - before.step_seconds, after.host_seconds - before.host_seconds
    assert computing > 0
    assert between > 0
    assert computing + between <= elapsed


def test_the_facts_agree_with_the_pipelines_own_numbers(bench: Bench) -> None:
    engine_info, metrics = bench.engine.engine_info, bench.engine._pipeline.get_metrics()
    assert isinstance(metrics, PipelineMetrics)
    layers, key_value_heads, head_size, bytes_per_number = 30, 3, 64, 4
    bytes_per_token = 2 * layers * key_value_heads * head_size * bytes_per_number
    assert engine_info.cache_tokens == metrics.cache_size_in_bytes // bytes_per_token
    assert engine_info.fingerprint.startswith("fp_")


def test_a_model_that_is_not_there_or_not_one_says_so(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("models")
    broken = folder / "broken.gguf"
    broken.write_text("no model")
    for path in (folder / "missing.gguf", broken, folder):
        with pytest.raises(EngineLoadError, match=path.name):
            OpenVINOEngine(options(str(path)), lambda stage: None)
