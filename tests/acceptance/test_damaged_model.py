"""A model file with damaged weights, and the same file repaired in place."""

import shutil
from pathlib import Path

import pytest

from shared.runtime.settings import EngineSettings
from worker.engine.interface import EngineLoadError
from worker.engine.openvino import OpenVINOEngine
from worker.engine.options import EngineOptions
from worker.model.local import default_model

_DAMAGED = slice(50_000_000, 50_004_096)


def load(file: Path, **settings: str) -> OpenVINOEngine:
    options = EngineOptions.from_settings(
        EngineSettings(cache_size=1, **settings),  # type: ignore[arg-type]
        path=str(file),
        context_length=1024,
    )
    return OpenVINOEngine(options, lambda stage: None)


def test_a_damaged_model_is_refused_until_it_is_repaired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "model.gguf"
    shutil.copyfile(default_model(), file)
    with file.open("r+b") as content:
        content.seek(_DAMAGED.start)
        intact = content.read(_DAMAGED.stop - _DAMAGED.start)
        content.seek(_DAMAGED.start)
        content.write(b"\xff" * len(intact))
    with pytest.raises(EngineLoadError, match="values that are not finite"):
        load(file, weights="int8")
    with file.open("r+b") as content:
        content.seek(_DAMAGED.start)
        content.write(intact)
    assert load(file, weights="int8").engine_info.context_length > 0
