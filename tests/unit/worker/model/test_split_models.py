"""Split GGUF files are one model with one name, size and identity."""

from pathlib import Path

import pytest

from tests.support.gguf_files import split_llama
from worker.model.files import model_bytes
from worker.model.identity import model_identity
from worker.model.local import resolve
from worker.model.source import ModelError, parse_source


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "models"
    folder.mkdir()
    return split_llama(folder, "tiny-Q4_1", 3)


def test_any_part_and_the_folder_are_the_model(parts: list[Path]) -> None:
    for source in (*parts, parts[0].parent):
        model = resolve(str(source))
        assert (model.name, model.path, model.kind, model.context_length) == ("tiny", parts[0], "gguf", 2048)
    assert model_bytes(parts[0]) == sum(part.stat().st_size for part in parts)


def test_a_folder_with_another_model_says_to_name_one(parts: list[Path]) -> None:
    parts[0].with_name("other.gguf").write_bytes(parts[0].read_bytes())
    with pytest.raises(ModelError, match="name one of them"):
        resolve(str(parts[0].parent))


def test_the_identity_is_that_of_all_parts(parts: list[Path]) -> None:
    before = model_identity(parts[0])
    content = bytearray(parts[2].read_bytes())
    content[-1] ^= 1
    parts[2].write_bytes(content)
    assert model_identity(parts[0]) != before


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_missing_part_is_named(parts: list[Path], number: int) -> None:
    parts[number].unlink()
    for source in (*(part for part in parts if part.exists()), parts[0].parent):
        with pytest.raises(ModelError, match=rf"split into 3 files; {parts[number].name} missing there"):
            resolve(str(source))


def test_a_part_that_is_cut_short_is_named(parts: list[Path]) -> None:
    parts[1].write_bytes(parts[1].read_bytes()[:-100])
    with pytest.raises(ModelError, match=f"{parts[1].name} can't be read"):
        resolve(str(parts[0]))


def test_a_part_with_another_name_is_refused(parts: list[Path]) -> None:
    renamed = parts[0].rename(parts[0].with_name("model.gguf"))
    with pytest.raises(ModelError, match="is a part of 3: its files must be named NAME-00001-of-00003"):
        resolve(str(renamed))


def test_all_parts_are_copied_if_one_is_read_only(
    parts: list[Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("worker.model.local._opens_for_writing", lambda file: file != parts[1])
    model = resolve(str(parts[0]))
    assert (model.name, model.path.name) == ("tiny", parts[0].name)
    assert model.path.is_relative_to(tmp_path / "cache")
    assert model_identity(model.path) == model_identity(parts[0])


def test_a_name_in_front_is_kept(parts: list[Path]) -> None:
    assert parse_source(f"chat={parts[1]}").name == "chat"
