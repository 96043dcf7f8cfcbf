"""Drives an engine on the real model in the test's own process."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import openvino_genai
import pytest

from shared.protocol.request import Sampling
from shared.runtime.settings import EngineSettings
from tests.support.fleet import ONE_THREAD
from worker.engine.protocol import EngineSequence, OutputGrammar, StepOutput
from worker.model.local import default_model
from worker.openvino.engine import OpenVINOEngine
from worker.openvino.options import OpenVINOOptions

CONTEXT = 8192
TOPICS = (
    "the sea", "a clock", "bread", "Paris", "a red fox", "winter", "numbers", "the moon",
    "a train", "tea", "gardens", "maps", "an old friend", "rain", "chess", "bees",
)  # fmt: skip


def options(path: str, **fields: Any) -> OpenVINOOptions:
    usual = {"precision": "exact", "cache_size": 1, "max_batch": 16, "plugin_config": json.dumps(ONE_THREAD)}
    settings = EngineSettings(**{**usual, **fields})
    return OpenVINOOptions.from_settings(settings, path=path, context_length=CONTEXT)


def small_cache(monkeypatch: pytest.MonkeyPatch, blocks: int) -> None:
    """Give engines a KV cache that is too small for a batch, so that the pipeline interrupts sequences."""

    class SmallCache(openvino_genai.SchedulerConfig):  # type: ignore[misc]
        cache_size = 0

        def __init__(self) -> None:
            super().__init__()
            self.num_kv_blocks = blocks

    monkeypatch.setattr("worker.openvino.load.openvino_genai.SchedulerConfig", SmallCache)


class Bench:
    """An engine, a tokenizer to write prompts with, and the outputs of runs."""

    def __init__(self, model: Path | None = None, **settings: Any) -> None:
        """``model`` is an IR folder or a GGUF file, the default model if omitted."""
        path = model or default_model()
        self.engine = OpenVINOEngine(options(str(path), **settings), lambda stage: None)
        self.tokenizer = openvino_genai.Tokenizer(str(path))
        self._numbers = iter(range(1, 1_000_000))

    def sequence(self, text: str, *, generated: tuple[int, ...] = (), grammar: OutputGrammar | None = None,
                 alternatives: int = 1, **sampling: object) -> EngineSequence:  # fmt: skip
        prompt = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
        ids = self.tokenizer.encode(prompt, add_special_tokens=False).input_ids.data[0]
        fields = {"temperature": 0.0, "seed": 1, "max_tokens": 40, **sampling}
        return EngineSequence(
            number=next(self._numbers),
            prompt=tuple(int(token) for token in ids),
            sampling=Sampling(**fields),  # type: ignore[arg-type]
            generated=generated,
            grammar=grammar,
            alternatives=alternatives,
        )

    def finish(self) -> list[StepOutput]:
        outputs: list[StepOutput] = []
        while self.engine.busy():
            outputs += self.engine.step()
        return outputs

    def run(self, sequences: Iterable[EngineSequence]) -> list[list[StepOutput]]:
        numbers = []
        for sequence in sequences:
            self.engine.add(sequence)
            numbers.append(sequence.number)
        outputs = self.finish()
        return [[output for output in outputs if output.number == number] for number in numbers]

    def one(self, text: str, **fields: object) -> list[StepOutput]:
        return self.run([self.sequence(text, **fields)])[0]  # type: ignore[arg-type]
