"""Forms of GGUF files in the weight cache, and their export without a tokenizer."""

import json
from pathlib import Path

import pytest

from tests.support.gguf_files import tiny_llama
from worker.openvino.export import MODEL_FILES, cached_form, export_gguf


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    file = tmp_path / "small.gguf"
    file.write_bytes(tiny_llama())
    return file


def test_a_form_has_a_folder_for_each_set_of_what_it_depends_on(gguf: Path) -> None:
    def make(scratch: Path) -> Path:
        (scratch / "made").mkdir()
        return scratch / "made"

    made = [cached_form("form", gguf, depends_on, make) for depends_on in ((), ("1",), ("2",), ("1",))]
    assert made[1] == made[3]
    assert len(set(made)) == 3


def test_a_file_that_was_changed_gets_another_form(gguf: Path) -> None:
    def make(scratch: Path) -> Path:
        (scratch / "made").mkdir()
        return scratch / "made"

    first = cached_form("form", gguf, (), make)
    gguf.write_bytes(tiny_llama(layers=2))
    assert cached_form("form", gguf, (), make) != first


def test_weights_are_exported_without_the_files_tokenizer(gguf: Path, tmp_path: Path) -> None:
    """The one that OpenVINO GenAI makes takes seconds, or fails."""
    folder = export_gguf(gguf, 64, tmp_path)
    assert {file.name for file in folder.iterdir()} == {*MODEL_FILES, "config.json"}
    assert json.loads((folder / "config.json").read_text()) == {"max_position_embeddings": 64}
