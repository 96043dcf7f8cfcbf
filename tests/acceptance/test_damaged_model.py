"""GGUF files that are served with int8 weights: the default model, and a damaged file that is repaired in place."""

from pathlib import Path

import pytest

from shared.runtime.settings import EngineSettings
from tests.support.engine_driver import Bench
from tests.support.engine_outputs import text_of
from tests.support.gguf_files import tiny_llama
from tests.support.paths import MODELS
from worker.engine.protocol import EngineLoadError
from worker.openvino.engine import OpenVINOEngine
from worker.openvino.logits.operation import Logits, LogitsHook, StepInput
from worker.openvino.logits.rows import RowAssigner
from worker.openvino.options import OpenVINOOptions

_DAMAGED = slice(-4096, None)
TINY = MODELS / "qwen2-byte-level-bpe"


def load(file: Path, stages: list[str] | None = None, **settings: str) -> OpenVINOEngine:
    options = OpenVINOOptions.from_settings(
        EngineSettings(cache_size=1, **settings),
        path=str(file),
        context_length=1024,
    )
    return OpenVINOEngine(options, (stages if stages is not None else []).append)


def test_a_damaged_model_is_refused_until_it_is_repaired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "model.gguf"
    intact = tiny_llama()
    damaged = bytearray(intact)
    damaged[_DAMAGED] = b"\xff" * len(intact[_DAMAGED])
    file.write_bytes(damaged)
    with pytest.raises(EngineLoadError, match="values that are not finite"):
        load(file, weights="int8")
    with file.open("r+b") as content:
        content.write(intact)
    assert load(file, weights="int8").engine_info.context_length > 0


@pytest.mark.parametrize("logits", ["auto", "on", "off"])
def test_a_model_that_can_not_run_fails_once_and_with_its_own_message(
    logits: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "model.gguf"
    damaged = bytearray(tiny_llama())
    damaged[_DAMAGED] = b"\xff" * len(damaged[_DAMAGED])
    file.write_bytes(damaged)
    stages: list[str] = []
    with pytest.raises(EngineLoadError, match=r"^the model can't generate a token\. Its file may be damaged"):
        load(file, stages, weights="original", logits=logits)
    assert stages.count("warming up") == 1
    assert not caplog.records


def test_a_tap_that_fails_is_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    def fail(self: LogitsHook, outputs: object, inputs: object) -> bool:
        raise ValueError("not today")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(LogitsHook, "evaluate", fail)
    stages: list[str] = []
    assert load(TINY, stages).engine_info.logits is False
    assert stages.count("warming up") == 2
    assert "fields that need logits are not served" in caplog.text
    with pytest.raises(EngineLoadError, match="can't be loaded with access to its logits"):
        load(TINY, logits="on")


def test_a_tap_whose_biases_do_not_arrive_is_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    on_logits = RowAssigner.on_logits

    def on_a_copy(self: RowAssigner, logits: Logits, step: StepInput) -> None:
        on_logits(self, logits.copy(), step)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(RowAssigner, "on_logits", on_a_copy)
    assert load(TINY, []).engine_info.logits is False
    assert "fields that need logits are not served: the row gives a log probability of" in caplog.text


def test_the_default_model_is_served_with_int8_weights() -> None:
    """Converts it, unless this user's cache has the result."""
    assert "Paris" in text_of(Bench(weights="int8").one("What is the capital of France?", max_tokens=20))
