"""Loading a model again without a logits hook that has failed."""

import weakref
from pathlib import Path
from unittest.mock import sentinel

import pytest

from shared.runtime.settings import EngineSettings
from tests.support.paths import MODELS
from worker.engine.protocol import EngineLoadError
from worker.openvino import load
from worker.openvino.logits.operation import HookFailed
from worker.openvino.options import OpenVINOOptions

MODEL = MODELS / "qwen2-byte-level-bpe"


class Pipeline:
    """Stands for a pipeline in memory."""


def options(logits: str) -> OpenVINOOptions:
    settings = EngineSettings(logits=logits)
    return OpenVINOOptions.from_settings(settings, path=str(MODEL), context_length=64)


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is loaded, one after the other: with a hook, which fails, and without."""
    done: list[str] = []
    hooked_pipeline: list[weakref.ref[Pipeline]] = []

    def load_one(
        options: OpenVINOOptions, served: Path, hooked: Path | None, choice: load.EngineChoice, progress: object
    ) -> object:
        if hooked is None:
            freed = hooked_pipeline[0]() is None
            done.append("plain, the only one" if freed else "plain, beside the other")
            return sentinel.loaded
        pipeline = Pipeline()
        hooked_pipeline.append(weakref.ref(pipeline))
        done.append("hooked")
        raise HookFailed("no rows")

    monkeypatch.setattr(load, "_load", load_one)
    monkeypatch.setattr(load, "hooked_model", lambda *_, paged: Path("hooked"))
    return done


def test_the_hooked_pipeline_is_freed_before_the_model_is_loaded_without(
    loaded: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert load.load_model(options("auto"), MODEL, lambda stage: None) is sentinel.loaded
    assert loaded == ["hooked", "plain, the only one"]
    assert "fields that need logits are not served: no rows" in caplog.text


def test_a_tap_that_was_asked_for_must_work(loaded: list[str]) -> None:
    with pytest.raises(EngineLoadError, match="can't be loaded with access to its logits: no rows"):
        load.load_model(options("on"), MODEL, lambda stage: None)
    assert loaded == ["hooked"]
