"""The comparison of a model's files with what they were."""

import os
from pathlib import Path

import pytest

from worker.engine.unchanged import ModelChanged, UnchangedModel


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "model"
    made.mkdir()
    for name in ("openvino_model.xml", "openvino_model.bin", "openvino_tokenizer.bin"):
        (made / name).write_bytes(b"old")
    return made


def test_a_model_that_stays_is_unchanged(folder: Path) -> None:
    model = UnchangedModel(str(folder), "")
    (folder / "notes.txt").write_text("not a part of the model")
    model.check()
    model.check("vocabulary")
    model.check("vocabulary")
    assert not model.changed.is_set()


@pytest.mark.parametrize("change", ["content", "same time", "missing", "more", "replaced folder"])
def test_any_other_file_is_a_change(folder: Path, change: str) -> None:
    model, file = UnchangedModel(str(folder)), folder / "openvino_tokenizer.bin"
    match change:
        case "content":
            file.write_bytes(b"new model")
        case "same time":
            before = file.stat()
            file.write_bytes(b"new")
            os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        case "missing":
            file.unlink()
        case "more":
            (folder / "config.json").write_text("{}")
        case _:
            folder.rename(folder.with_name("away"))
            folder.mkdir()
            file.write_bytes(b"old")
    with pytest.raises(ModelChanged, match=r"has changed .*: .*/"):
        model.check()
    assert model.changed.is_set()


def test_other_status_of_files_with_the_same_content_is_no_change(folder: Path) -> None:
    model, file = UnchangedModel(str(folder)), folder / "openvino_tokenizer.bin"
    model.check("vocabulary", "fp_1")
    file.chmod(0o400)
    model.check("vocabulary", "fp_1")
    model.check()
    folder.joinpath("openvino_model.bin").chmod(0o400)
    with pytest.raises(ModelChanged):
        model.check("vocabulary", "fp_2")


def test_another_vocabulary_is_a_change(folder: Path) -> None:
    model = UnchangedModel(str(folder))
    model.check("one")
    with pytest.raises(ModelChanged, match="its vocabulary"):
        model.check("two")


def test_a_folder_that_is_gone_is_a_change(folder: Path) -> None:
    model = UnchangedModel(str(folder))
    folder.rename(folder.with_name("away"))
    with pytest.raises(ModelChanged):
        model.check()


def test_an_engine_without_files_has_none_that_change() -> None:
    UnchangedModel().check("vocabulary")
