"""The engine on an NPU, without one: the pipeline runs on a CPU, and the properties for the NPU are recorded."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import openvino_genai
import pytest

from shared.protocol.errors import ProblemKind, RequestRefused
from tests.support.engine_driver import Bench
from tests.support.engine_outputs import tokens_of
from tests.support.paths import MODELS
from worker.engine.protocol import EngineLoadError
from worker.openvino import load

MODEL = MODELS / "qwen2-byte-level-bpe"
PROMPT = "Tell me about the sea."
load_on_cpu: Callable[..., object] = openvino_genai.LLMPipeline


class Npu:
    """Stands for an NPU: keeps the properties of the last pipeline."""

    properties: dict[str, Any]

    def load(self, path: str, tokenizer: openvino_genai.Tokenizer, device: str, **properties: Any) -> object:
        assert device == "NPU"
        self.properties = properties
        return load_on_cpu(path, tokenizer, "CPU", ATTENTION_BACKEND="SDPA", INFERENCE_PRECISION_HINT="f32")


@pytest.fixture
def npu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Npu:
    found = Npu()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(load, "is_missing", lambda device, available: False)
    monkeypatch.setattr(openvino_genai, "LLMPipeline", found.load)
    return found


def bench(properties: str = "{}", **settings: Any) -> Bench:
    return Bench(MODEL, **{"device": "NPU", "precision": "fast", "plugin_config": properties, **settings})


def test_the_pipeline_gets_the_properties_of_npus(npu: Npu, tmp_path: Path) -> None:
    info = bench().engine.engine_info
    assert npu.properties == {
        "MAX_PROMPT_LEN": 1024,
        "MIN_RESPONSE_LEN": 512,
        "GENERATE_HINT": "BEST_PERF",
        "CACHE_DIR": str(tmp_path / "vinoqueue" / "npu"),
    }
    assert (info.engine, info.slots, info.context_length, info.cache_tokens) == ("stateful", 1, 1536, 1536)
    assert info.max_prompt == 1024
    assert "NPU" in info.reason


def test_the_operators_properties_have_precedence(npu: Npu) -> None:
    engine = bench('{"MAX_PROMPT_LEN": 2048, "GENERATE_HINT": "FAST_COMPILE", "NPU_TURBO": true}').engine
    assert npu.properties["MAX_PROMPT_LEN"] == 2048
    assert npu.properties["GENERATE_HINT"] == "FAST_COMPILE"
    assert npu.properties["NPU_TURBO"] is True
    assert engine.engine_info.context_length == 2048 + 512


def test_a_prompt_that_is_too_long_is_refused_by_the_name_of_the_limit(npu: Npu) -> None:
    engine = bench('{"MAX_PROMPT_LEN": 256}')
    with pytest.raises(RequestRefused, match=r"256 tokens .*MAX_PROMPT_LEN.* resulted in") as refused:
        engine.engine.add(engine.sequence("sea " * 256))
    assert refused.value.problem.kind is ProblemKind.CONTEXT_LENGTH


def test_an_output_that_makes_the_prompt_too_long_is_generated_again(npu: Npu) -> None:
    engine = bench('{"MAX_PROMPT_LEN": 256}')
    whole = tokens_of(engine.one(PROMPT, max_tokens=300, ignore_eos=True))
    assert len(whole) == 300
    rest = engine.one(PROMPT, max_tokens=300, ignore_eos=True, generated=whole[:290])
    assert tokens_of(rest) == whole[290:]


def test_logits_are_not_at_hand(npu: Npu) -> None:
    engine = bench()
    assert not engine.engine.engine_info.logits
    for fields in ({"logprobs": True}, {"top_logprobs": 1}, {"logit_bias": ((1, 1.0),)}):
        with pytest.raises(RequestRefused, match="no access to its logits"):
            engine.engine.add(engine.sequence(PROMPT, **fields))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"engine": "batched"}, "use --engine auto"),
        ({"precision": "exact"}, "omit --precision exact"),
        ({"properties": '{"MAX_PROMPT_LEN": "long"}'}, "MAX_PROMPT_LEN must be a positive number"),
    ],
)
def test_what_npus_can_not_do_is_said(npu: Npu, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(EngineLoadError, match=message):
        bench(**settings)
