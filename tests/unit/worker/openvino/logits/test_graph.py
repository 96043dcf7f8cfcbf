"""The folder of a model with a logits hook: made once, and with links to the weights."""

import shutil
from pathlib import Path

import numpy
import openvino
import pytest
from openvino import opset13 as opset

from shared.runtime.settings import EngineSettings
from tests.support.gguf_files import tiny_llama
from tests.support.paths import MODELS
from worker.engine.protocol import EngineLoadError
from worker.openvino.logits import graph
from worker.openvino.logits.graph import NoHook, add_hook, hooked_folder, hooked_model
from worker.openvino.options import OpenVINOOptions

TINY = MODELS / "qwen2-byte-level-bpe"


@pytest.fixture(autouse=True)
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Path(shutil.copytree(TINY, tmp_path / "model"))


def options(**fields: object) -> OpenVINOOptions:
    return OpenVINOOptions.from_settings(EngineSettings(**fields), path="", context_length=64)


def test_weights_and_tokenizer_are_linked(model: Path) -> None:
    folder = hooked_folder(model, 64)
    assert {file.name for file in folder.iterdir()} == {file.name for file in model.iterdir()}
    linked = {file.name for file in folder.iterdir() if file.is_symlink()}
    assert linked == {file.name for file in model.iterdir()} - {"openvino_model.xml"}
    assert "LogitsHook" in (folder / "openvino_model.xml").read_text()


@pytest.mark.parametrize("name", ["qwen2-vl-shapes", "llava-random"])
def test_only_the_language_model_of_a_vision_language_model_is_changed(name: str) -> None:
    folder = hooked_folder(MODELS / name, 64)
    assert {file.name for file in folder.iterdir()} == {file.name for file in (MODELS / name).iterdir()}
    assert [file.name for file in folder.iterdir() if not file.is_symlink()] == ["openvino_language_model.xml"]


def test_it_is_made_once_for_each_content(model: Path) -> None:
    folder = hooked_folder(model, 64)
    made = (folder / "openvino_model.xml").stat().st_mtime_ns
    assert hooked_folder(model, 64) == folder
    assert (folder / "openvino_model.xml").stat().st_mtime_ns == made
    (model / "config.json").write_text("{}")
    assert hooked_folder(model, 64) != folder


@pytest.mark.parametrize("fields", [{"device": "GPU"}])
def test_where_it_was_not_tried_it_is_off_unless_asked_for(model: Path, fields: dict[str, object]) -> None:
    assert hooked_model(options(**fields), model) is None
    with pytest.raises(EngineLoadError, match="--logits on is not possible"):
        hooked_model(options(logits="on", **fields), model)


def test_a_large_gguf_file_is_saved_as_an_ir_only_if_the_hook_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph, "SMALL_MODEL", 3)
    file = tmp_path / "large.gguf"
    file.write_bytes(tiny_llama())
    assert hooked_model(options(), file) is None
    folder = hooked_model(options(logits="on"), file)
    assert folder is not None
    made = (folder / "openvino_model.bin").stat().st_mtime_ns
    assert "LogitsHook" in (folder / "openvino_model.xml").read_text()
    assert hooked_model(options(logits="on"), file) == folder
    assert (folder / "openvino_model.bin").stat().st_mtime_ns == made


def test_off_makes_nothing(model: Path, tmp_path: Path) -> None:
    assert hooked_model(options(logits="off"), model) is None
    assert not (tmp_path / "cache").exists()


def test_a_model_without_a_place_for_it_is_served_without(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    ids = opset.parameter([-1, -1], openvino.Type.i64, name="input_ids")
    ids.output(0).set_names({"input_ids"})
    openvino.save_model(openvino.Model([opset.result(ids)], [ids]), model / "openvino_model.xml")
    assert hooked_model(options(), model) is None
    assert "the shape of the model's logits is [?,?]" in caplog.text
    with pytest.raises(EngineLoadError, match="shape of the model's logits"):
        hooked_model(options(logits="on"), model)


def test_logits_that_come_from_no_product_are_named() -> None:
    inputs = [opset.parameter([-1, -1], openvino.Type.i64, name=name) for name in ("input_ids", "position_ids")]
    for one in inputs:
        one.output(0).set_names({one.get_friendly_name()})
    ones = opset.constant(numpy.ones((1, 1, 5), numpy.float32))
    logits = opset.multiply(ones, opset.unsqueeze(opset.convert(inputs[0], "f32"), opset.constant(2)))
    with pytest.raises(NoHook, match="multiplication of matrices"):
        add_hook(openvino.Model([opset.result(logits)], inputs))
