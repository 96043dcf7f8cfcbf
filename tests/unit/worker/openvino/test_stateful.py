"""The stateful pipeline behind the methods of the batched one, with a pipeline that the tests advance."""

import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import numpy
import openvino
import openvino_genai
import pytest

from tests.support.eventually import wait_until
from worker.openvino import stateful
from worker.openvino.stateful import Chunk, StatefulHandle, StatefulPipeline, paced

RUNNING = openvino_genai.GenerationStatus.RUNNING
FINISHED = openvino_genai.GenerationStatus.FINISHED


class Results:
    finish_reasons = (openvino_genai.GenerationFinishReason.STOP,)
    perf_metrics = None


class Pipeline:
    """Stands for an ``LLMPipeline``: writes the tokens that it is given; None ends the request, an error fails it."""

    def __init__(self) -> None:
        self.given: SimpleQueue[int | Exception | None] = SimpleQueue()
        self.ended = 0

    def generate(self, prompt: openvino.Tensor, config: object, streamer: StatefulHandle) -> Results:
        try:
            while (token := self.given.get()) is not None:
                if isinstance(token, Exception):
                    raise token
                if streamer.write([token]) is not openvino_genai.StreamingStatus.RUNNING:
                    break
            return Results()
        finally:
            self.ended += 1


@pytest.fixture
def model() -> Iterator[Pipeline]:
    model = Pipeline()
    yield model
    model.given.put(None)


@pytest.fixture
def pipeline(model: Pipeline) -> StatefulPipeline:
    return StatefulPipeline(model, 100)


def add(pipeline: StatefulPipeline, tokens: int = 1) -> StatefulHandle:
    prompt = openvino.Tensor(numpy.zeros((1, tokens), numpy.int64))
    return pipeline.add_request(1, prompt, openvino_genai.GenerationConfig(max_new_tokens=50))


def step_until_output(pipeline: StatefulPipeline, handle: StatefulHandle) -> None:
    """A step may end without a token."""
    while not handle.can_read():
        pipeline.step()


def step_forever(pipeline: StatefulPipeline) -> None:
    while True:
        pipeline.step()


def read(handle: StatefulHandle) -> list[int]:
    return handle.read()[0].generated_ids


def test_a_step_of_a_long_prefill_returns_without_a_token(pipeline: StatefulPipeline, model: Pipeline) -> None:
    handle = add(pipeline, tokens=90)
    pipeline.step()
    assert not handle.can_read()
    assert handle.get_status() == RUNNING
    model.given.put(7)
    wait_until(handle.can_read, "the token")
    pipeline.step()
    assert read(handle) == [7]


def test_a_prefill_that_is_too_slow_counts_as_hung(
    pipeline: StatefulPipeline, model: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stateful, "PREFILL_RATE", 1_000_000)
    handle = add(pipeline)
    stepping = threading.Thread(target=pipeline.step)
    stepping.start()
    stepping.join(3 * stateful._STEP)
    assert stepping.is_alive()
    model.given.put(7)
    stepping.join()
    assert read(handle) == [7]


def test_the_next_request_starts_when_the_pipeline_has_left_a_cancelled_one(
    pipeline: StatefulPipeline, model: Pipeline
) -> None:
    first, second = add(pipeline), add(pipeline)
    model.given.put(1)
    pipeline.step()
    first.cancel()
    pipeline.step()
    assert pipeline.get_metrics().requests == 2
    model.given.put(2)
    wait_until(lambda: model.ended, "the pipeline to leave the request")
    pipeline.step()
    model.given.put(3)
    step_until_output(pipeline, second)
    assert read(second) == [3]
    assert first.get_status() == FINISHED


def test_the_reason_for_an_end_follows_the_last_token(pipeline: StatefulPipeline, model: Pipeline) -> None:
    handle = add(pipeline)
    model.given.put(1)
    step_until_output(pipeline, handle)
    assert handle.read()[0] == Chunk([1], openvino_genai.GenerationFinishReason.NONE)
    model.given.put(None)
    step_until_output(pipeline, handle)
    assert handle.read()[0] == Chunk([], openvino_genai.GenerationFinishReason.STOP)
    assert not pipeline.has_non_finished_requests()


def test_an_error_is_that_of_its_step(pipeline: StatefulPipeline, model: Pipeline) -> None:
    handle = add(pipeline)
    model.given.put(RuntimeError("a bad grammar"))
    with pytest.raises(RuntimeError, match="a bad grammar"):
        step_forever(pipeline)
    assert handle.get_status() == RUNNING
    assert not pipeline.has_non_finished_requests()


def test_logits_wait_until_the_tokens_before_them_were_read(pipeline: StatefulPipeline, model: Pipeline) -> None:
    seen: list[str] = []

    class Listener:
        def wants_rows(self) -> bool:
            seen.append("asked")
            return False

        def on_logits(self, logits: Any, step: Any) -> None:
            raise AssertionError

    listener = paced(pipeline, Listener())
    handle = add(pipeline)
    model.given.put(1)
    step_until_output(pipeline, handle)
    listener.wants_rows()
    ahead = threading.Thread(target=listener.wants_rows)
    ahead.start()
    assert seen == ["asked"]
    assert read(handle) == [1]
    model.given.put(2)
    step_until_output(pipeline, handle)
    ahead.join()
    assert seen == ["asked", "asked"]
    handle.cancel()
    assert not listener.wants_rows()
    assert seen == ["asked", "asked"]  # they would be taken for those of the next request


def test_a_prompt_with_images_that_fails_leaves_nothing_behind_for_the_next(
    model: Pipeline, pipeline: StatefulPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[object] = []
    cleared: list[int] = []

    def generate(text: str, *, images: object, generation_config: object, streamer: StatefulHandle) -> Results:
        given.append(images)
        if text == "too long":
            raise RuntimeError(text)
        streamer.write(7)
        return Results()

    monkeypatch.setattr(model, "generate", generate)
    monkeypatch.setattr(model, "finish_chat", lambda: cleared.append(len(given)), raising=False)
    images = [openvino.Tensor(numpy.zeros((1, 4, 4, 3), numpy.uint8))]
    config = openvino_genai.GenerationConfig(max_new_tokens=50)
    pipeline.add_request(1, "too long", images, config)
    served = pipeline.add_request(2, "text", images, config)
    with pytest.raises(RuntimeError, match="too long"):
        step_forever(pipeline)
    assert cleared == [1]
    step_until_output(pipeline, served)
    assert read(served) == [7]
    assert given == [images, images]
