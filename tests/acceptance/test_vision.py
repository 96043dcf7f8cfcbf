"""Images in the engine and through the service: mixed batches, limits, resumption, and engines and workers that die."""

import io
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy
import openvino_genai
import pytest
from PIL import Image

from shared.protocol.errors import ProblemKind, RequestRefused
from shared.protocol.request import PromptScoring, Sampling
from tests.support.engine_driver import options
from tests.support.engine_outputs import deltas_of, text_of, tokens_of
from tests.support.fleet import Fleet, Process, exact, fleet
from tests.support.pictures import data_url, picture
from tests.support.processes import family
from tests.support.unfused_attention import copy_unfused
from worker.engine.protocol import (
    EngineLoadError,
    EngineSequence,
    OutputGrammar,
    PlacedImage,
    SequenceRefused,
    StepOutput,
)
from worker.grammar.schema.compiler import schema_grammar
from worker.openvino.engine import OpenVINOEngine
from worker.openvino.logits.operation import LogitsHook
from worker.openvino.options import OpenVINOOptions

MODELS = Path(__file__).parents[1] / "models"
NAMES = ("qwen2-vl-shapes", "llava-random")
PROMPTS = (
    "<|im_start|>user\nDescribe every corner.<|im_end|>\n<|im_start|>assistant\n",
    "USER: Describe every corner.\nASSISTANT: ",
)
"""Of the models in ``NAMES``."""
CONTEXT = 512
BEFORE, AFTER = 3, 7
"""Tokens of the first prompt before and after its question."""


def engine_options(folder: Path, **fields: Any) -> OpenVINOOptions:
    return msgspec.structs.replace(options(str(folder), **fields), context_length=CONTEXT)


def image(at: int, seed: int, width: int = 112, height: int = 112) -> PlacedImage:
    return PlacedImage(at, width, height, picture(seed).pixels(height, width).tobytes())


class Driver:
    """An engine that runs sequences to their ends."""

    def __init__(
        self, name: str, engine: str = "batched", logits: str = "on", change: Callable[[Path], Path] | None = None
    ) -> None:
        """``change`` returns a changed copy of the model's folder."""
        folder = change(MODELS / name) if change else MODELS / name
        self.engine = OpenVINOEngine(engine_options(folder, engine=engine, logits=logits), lambda stage: None)
        tokenizer = openvino_genai.Tokenizer(str(folder))
        prompt = tokenizer.encode(PROMPTS[NAMES.index(name)], add_special_tokens=False).input_ids.data[0]
        self.prompt = tuple(map(int, prompt))
        self._numbers = iter(range(1, 10_000))

    def sequence(self, *images: PlacedImage, generated: tuple[int, ...] = (), grammar: OutputGrammar | None = None,
                 **sampling: Any) -> EngineSequence:  # fmt: skip
        fields = {"temperature": 0.0, "seed": 1, "max_tokens": 30, "ignore_eos": True, **sampling}
        return EngineSequence(
            number=next(self._numbers),
            prompt=self.prompt,
            images=images,
            sampling=Sampling(**fields),
            generated=generated,
            grammar=grammar,
        )

    def run(self, *sequences: EngineSequence) -> tuple[list[list[StepOutput]], list[SequenceRefused]]:
        outputs: dict[int, list[StepOutput]] = {sequence.number: [] for sequence in sequences}
        refused: list[SequenceRefused] = []
        for sequence in sequences:
            self.engine.add(sequence)
        while self.engine.busy():
            for output in self.engine.step():
                outputs[output.number].append(output)
            refused += self.engine.refused()
        return list(outputs.values()), refused

    def tokens(self, *sequences: EngineSequence) -> list[tuple[int, ...]]:
        outputs, refused = self.run(*sequences)
        assert not refused
        assert all(one[-1].reason == "length" for one in outputs)
        return [tokens_of(one) for one in outputs]


def prompt_tokens(outputs: list[StepOutput]) -> int:
    ending = outputs[-1].ending
    return ending.prompt_tokens if ending else 0


@pytest.fixture(scope="module", params=[*((name, "batched") for name in NAMES), (NAMES[0], "stateful")], ids="-".join)
def driver(request: pytest.FixtureRequest) -> Iterator[Driver]:
    driver = Driver(*request.param)
    yield driver
    assert driver.engine.gauges().requests == 0


def test_a_mixed_batch_gives_each_sequence_the_tokens_that_it_gets_alone(driver: Driver) -> None:
    one, two = image(BEFORE, 1), image(AFTER, 2, 60, 200)
    kinds: list[tuple[PlacedImage, ...]] = [
        (),
        (one,),
        (two,),
        (one, two),
        (),
        (image(0, 3),),
        (image(len(driver.prompt), 4),),
    ]
    together = driver.tokens(*(driver.sequence(*images) for images in kinds))
    alone = [driver.tokens(driver.sequence(*images))[0] for images in kinds]
    assert together == alone
    assert together[0] == together[4]
    assert len(set(together)) == 6


@pytest.mark.parametrize("cut", [1, 2, 11, 29])
def test_an_interrupted_sequence_goes_on_with_the_same_tokens(driver: Driver, cut: int) -> None:
    for images in ((), (image(BEFORE, 1), image(AFTER, 2))):
        whole = driver.tokens(driver.sequence(*images))[0]
        resumed = driver.sequence(*images, generated=whole[:cut])
        (outputs,), _ = driver.run(resumed)
        assert tokens_of(outputs) == whole[cut:]
        (undisturbed,), _ = driver.run(driver.sequence(*images))
        assert prompt_tokens(outputs) == prompt_tokens(undisturbed)


def test_the_stateful_and_the_batched_engine_continue_each_others_sequences() -> None:
    drivers = [Driver(NAMES[1], engine, logits="off") for engine in ("stateful", "batched")]
    for first, then in (drivers, drivers[::-1]):
        for images in ((), (image(BEFORE, 1), image(AFTER, 2))):
            whole = first.tokens(first.sequence(*images))[0]
            for cut in (1, 17):
                assert then.tokens(then.sequence(*images, generated=whole[:cut])) == [whole[cut:]]


def test_a_model_without_fused_attention_is_loaded_with_the_stateful_engine(tmp_path: Path) -> None:
    unfused = Driver(NAMES[0], "auto", "off", lambda model: copy_unfused(model, tmp_path / "unfused"))
    assert unfused.engine.engine_info.engine == "stateful"
    assert "No ScaledDotProductAttention operation" in unfused.engine.engine_info.reason
    fused = Driver(NAMES[0], logits="off")
    for images in ((), (image(BEFORE, 1), image(AFTER, 2))):
        assert unfused.tokens(unfused.sequence(*images)) == fused.tokens(fused.sequence(*images))


@pytest.mark.parametrize("sampling", [{"frequency_penalty": 1.5}, {"repetition_penalty": 1.7}])
def test_penalties_count_tokens_of_earlier_attempts(driver: Driver, sampling: dict[str, Any]) -> None:
    whole = driver.tokens(driver.sequence(image(BEFORE, 1), **sampling))[0]
    assert whole != driver.tokens(driver.sequence(image(BEFORE, 1)))[0]
    assert driver.tokens(driver.sequence(image(BEFORE, 1), generated=whole[:11], **sampling)) == [whole[11:]]


def test_constraints_hold_for_prompts_with_images_and_are_resumed(driver: Driver) -> None:
    schema = (
        '{"type":"object","properties":{"a":{"enum":["red","blue"]}},"required":["a"],"additionalProperties":false}'
    )
    grammar = OutputGrammar(schema_grammar(schema))
    (outputs,), _ = driver.run(driver.sequence(image(BEFORE, 1), grammar=grammar, ignore_eos=False, max_tokens=200))
    text, tokens = text_of(outputs), tokens_of(outputs)
    assert outputs[-1].reason == "stop"
    assert msgspec.json.decode(text)["a"] in ("red", "blue")
    again = driver.sequence(image(BEFORE, 1), grammar=grammar, ignore_eos=False, max_tokens=200, generated=tokens[:4])
    (outputs,), _ = driver.run(again)
    assert tokens_of(outputs) == tokens[4:]


def test_the_last_output_counts_the_tokens_of_images(driver: Driver) -> None:
    ends = [
        driver.sequence(image(BEFORE, 1)),  # ends in the pipeline
        driver.sequence(image(BEFORE, 1), max_tokens=1),
        driver.sequence(image(BEFORE, 1), stop=("e", "a", "i", "o", "u", " ", "t"), max_tokens=500),  # ended by us
        driver.sequence(image(BEFORE, 1), image(BEFORE, 2)),
        driver.sequence(),
    ]
    outputs, _ = driver.run(*ends)
    one, shortest, stopped, two, none = (prompt_tokens(each) for each in outputs)
    assert len(driver.prompt) + 3 < one == shortest == stopped
    assert two - one == one - len(driver.prompt)
    assert none == 0


def test_images_that_exceed_the_context_are_refused_and_harm_nobody(driver: Driver) -> None:
    long = msgspec.structs.replace(driver.sequence(image(BEFORE, 1)), prompt=(driver.prompt * CONTEXT)[: CONTEXT - 1])
    text = driver.sequence()
    (_, outputs), (refused,) = driver.run(long, text)
    assert refused.number == long.number
    assert refused.problem.kind is ProblemKind.CONTEXT_LENGTH
    assert "images" in refused.problem.message
    assert outputs[-1].reason == "length"


def test_an_answer_ends_where_prompt_images_and_answer_fill_the_context(driver: Driver) -> None:
    (outputs,), _ = driver.run(driver.sequence(image(BEFORE, 1), max_tokens=None))
    assert outputs[-1].reason == "length"
    assert outputs[-1].end + prompt_tokens(outputs) == CONTEXT


def test_cancelled_sequences_leave_nothing_behind(driver: Driver) -> None:
    waiting, running, stays = (driver.sequence(image(BEFORE, seed)) for seed in (1, 2, 3))
    for sequence in (running, waiting, stays):
        driver.engine.add(sequence)
    driver.engine.step()
    driver.engine.cancel(waiting.number)
    driver.engine.cancel(running.number)
    outputs = []
    while driver.engine.busy():
        outputs += driver.engine.step()
    assert {output.number for output in outputs} == {stays.number}
    assert driver.engine.gauges().requests == 0


def test_only_one_prompt_with_images_starts_in_a_step_while_a_text_runs(driver: Driver) -> None:
    text, *others = (
        driver.sequence(*shown, max_tokens=1000) for shown in [(), *((image(BEFORE, seed),) for seed in range(4))]
    )
    driver.engine.add(text)
    driver.engine.step()
    for other in others:
        driver.engine.add(other)
    counts = [1]
    while counts[-1] < 5:
        driver.engine.step()
        counts.append(driver.engine.gauges().requests)
    assert all(later - earlier <= 1 for earlier, later in pairwise(counts))
    for sequence in (text, *others):
        driver.engine.cancel(sequence.number)
    while driver.engine.busy():
        driver.engine.step()


def test_prompts_with_images_that_arrive_together_start_without_pauses(driver: Driver) -> None:
    for seed in range(4):
        driver.engine.add(driver.sequence(image(BEFORE, seed)))
    counts = []
    while driver.engine.busy():
        driver.engine.step()
        counts.append(driver.engine.gauges().requests)
    assert all(count >= min(number, 4) for number, count in enumerate(counts[:4], 1))


def test_a_step_that_fails_is_survived_by_prompts_with_images(driver: Driver) -> None:
    bad = OutputGrammar('main ::= "a"')
    expected = driver.tokens(driver.sequence(image(BEFORE, 1)), driver.sequence())
    innocent, text, guilty = driver.sequence(image(BEFORE, 1)), driver.sequence(), driver.sequence(grammar=bad)
    driver.engine.add(innocent)
    driver.engine.add(text)
    outputs = driver.engine.step() + driver.engine.step()
    driver.engine.add(guilty)
    refused: list[SequenceRefused] = []
    while driver.engine.busy():
        outputs += driver.engine.step()
        refused += driver.engine.refused()
    assert [one.number for one in refused] == [guilty.number]
    for sequence, tokens in zip((innocent, text), expected, strict=True):
        assert tokens_of(output for output in outputs if output.number == sequence.number) == tokens


@pytest.mark.parametrize("fields", [{"prompt_lookup": True}, {"draft_model": str(MODELS / "qwen2-byte-level-bpe")}])
def test_speculation_is_refused_when_the_model_is_loaded(fields: dict[str, Any]) -> None:
    with pytest.raises(EngineLoadError, match="speculative decoding can't be combined"):
        OpenVINOEngine(engine_options(MODELS / NAMES[0], **fields), lambda stage: None)


def test_each_sequence_gets_the_rows_that_it_gets_alone(driver: Driver) -> None:
    """Some have images and some a bias; some need no rows. Log probabilities are compared with the pipeline's own."""
    wishes: list[dict[str, Any]] = [
        {"logprobs": True, "top_logprobs": 3},
        {},
        {"logit_bias": ((300, 100.0),)},
        {"logprobs": True, "top_logprobs": 2, "logit_bias": ((301, -100.0), (302, 4.0))},
    ]
    kinds = [(shown, wish) for wish in wishes for shown in ((), (image(BEFORE, 1),), (image(AFTER, 2, 60, 200),))]
    together, _ = driver.run(*(driver.sequence(*shown, max_tokens=12, **wish) for shown, wish in kinds))
    for (shown, wish), outputs in zip(kinds, together, strict=True):
        (alone,), refused = driver.run(driver.sequence(*shown, max_tokens=12, **wish))
        assert not refused
        assert tokens_of(outputs) == tokens_of(alone)
        for one, other in zip(deltas_of(outputs), deltas_of(alone), strict=True):
            assert [token.piece for top in one.top for token in top] == [
                token.piece for top in other.top for token in top
            ]
            assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
            assert all(len(top) == wish["top_logprobs"] for top in one.top)
        if wish.get("top_logprobs") == 3:
            (plain,), _ = driver.run(driver.sequence(*shown, max_tokens=12, logprobs=True))
            pairs = zip(deltas_of(plain), deltas_of(outputs), strict=True)
            assert all(one.logprobs == pytest.approx(other.logprobs, abs=1e-3) for one, other in pairs)
    assert set(tokens_of(together[6])) == set(tokens_of(together[7])) == {300}
    assert driver.engine.gauges().lost_rows == LogitsHook.failures == 0


def test_cached_tokens_include_those_of_images(driver: Driver) -> None:
    shown = (image(BEFORE, 77), image(AFTER, 78))
    sequences = [msgspec.structs.replace(driver.sequence(*shown), prompt=driver.prompt * 4) for _ in range(2)]
    cold, warm = (driver.run(sequence)[0][0] for sequence in sequences)
    assert tokens_of(cold) == tokens_of(warm)
    if not driver.engine.engine_info.prefix_caching:
        assert cold[-1].cached == warm[-1].cached == 0
        return
    assert cold[-1].cached < 32
    assert prompt_tokens(warm) - 64 < warm[-1].cached < prompt_tokens(warm)


def test_log_probabilities_of_prompts_are_refused_by_name(driver: Driver) -> None:
    scoring = PromptScoring(top=1, param="prompt_logprobs")
    for images in ((), (image(BEFORE, 1),)):
        with pytest.raises(RequestRefused, match="'prompt_logprobs' is not supported with this model") as refusal:
            driver.engine.add(driver.sequence(*images, prompt_scoring=scoring))
        assert refusal.value.problem.param == "prompt_logprobs"


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("seeing")) as running:
        running.add_workers(2, *WORKER)
        running.api()
        yield running


WORKER = exact(f"eyes={MODELS / NAMES[1]}", "--cache-size", "1")


def random_picture(seed: int) -> str:
    file = io.BytesIO()
    pixels = numpy.random.default_rng(seed).integers(0, 255, (84, 112, 3), dtype=numpy.uint8)
    Image.fromarray(pixels).save(file, "PNG")
    return data_url(file.getvalue())


def question(seed: int) -> list[Any]:
    image_part = {"type": "image_url", "image_url": {"url": random_picture(seed)}}
    return [{"role": "user", "content": [image_part, {"type": "text", "text": "What is this?"}]}]


def ask(
    running: Fleet, seed: int, tokens: int, on_chunk: Callable[[int], None] = lambda count: None
) -> tuple[str, int]:
    """The streamed answer about a picture, and the number of its prompt's tokens."""
    text, usage, count = "", 0, 0
    stream = running.client().chat.completions.create(
        model="eyes", messages=question(seed), max_tokens=tokens, temperature=0, stream=True,
        stream_options={"include_usage": True}, extra_body={"ignore_eos": True},
    )  # fmt: skip
    for chunk in stream:
        if chunk.choices and chunk.choices[0].delta.content:
            text += chunk.choices[0].delta.content
            count += 1
            on_chunk(count)
        usage = chunk.usage.prompt_tokens if chunk.usage else usage
    return text, usage


def engines(worker: Process) -> list[int]:
    return [
        pid for pid in family(worker.popen.pid) if b"worker.engine.child" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


@pytest.mark.parametrize("victim", ["engine", "worker"])
def test_streams_about_images_survive_the_death_of(victim: str, seeing: Fleet) -> None:
    undisturbed = [ask(seeing, seed, 150) for seed in range(6)]
    assert len({text for text, _ in undisturbed}) == 6
    workers = [
        process for process in seeing.processes if process.arguments[0] == "worker" and process.popen.poll() is None
    ]
    killed = threading.Event()

    def kill(count: int) -> None:
        if count == 20 and not killed.is_set():
            killed.set()
            for pid in engines(workers[0]) if victim == "engine" else [workers[0].popen.pid]:
                os.kill(pid, signal.SIGKILL)

    with ThreadPoolExecutor(6) as pool:
        disturbed = list(pool.map(lambda seed: ask(seeing, seed, 150, kill), range(6)))
    assert killed.is_set()
    assert disturbed == undisturbed
