"""A model's identity: the whole of its files, hashed once while they stay as they are."""

import hashlib
import os
import time
from pathlib import Path

import pytest

from worker.model import identity
from worker.model.identity import model_identity

_LARGE = 1 << 20


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "vinoqueue" / "digests"


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were read to be hashed; every file counts as old enough for its times to be trusted."""
    monkeypatch.setattr(identity, "_TIMESTAMP_TICK", -(10**18))
    hashed: list[str] = []
    digest = hashlib.file_digest

    def counted(file, name):  # type: ignore[no-untyped-def]
        hashed.append(file.name)
        return digest(file, name)

    monkeypatch.setattr(hashlib, "file_digest", counted)
    return hashed


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    file = tmp_path / "model.gguf"
    file.write_bytes(bytes(_LARGE))
    return file


def _overwrite(file: Path, at: int) -> None:
    """Change one byte in place, as a repair or a fault of the disk does."""
    with file.open("r+b") as content:
        content.seek(at)
        content.write(b"\x01")


@pytest.mark.parametrize("at", [0, _LARGE // 2, _LARGE - 1])
def test_every_byte_of_a_file_counts(gguf: Path, at: int) -> None:
    before = model_identity(gguf)
    _overwrite(gguf, at)
    assert model_identity(gguf) != before


def test_a_file_is_hashed_once(gguf: Path, hashed: list[str]) -> None:
    assert model_identity(gguf) == model_identity(gguf)
    assert hashed == [str(gguf)]


def test_a_change_that_leaves_size_and_modification_time_is_seen(gguf: Path, hashed: list[str]) -> None:
    before, stat = model_identity(gguf), gguf.stat()
    while time.time_ns() - stat.st_ctime_ns < 50_000_000:
        pass  # the clock of a file system ticks every few milliseconds
    _overwrite(gguf, _LARGE // 2)
    os.utime(gguf, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert model_identity(gguf) != before
    assert len(hashed) == 2


def test_the_digest_of_a_file_that_has_just_changed_is_not_kept(gguf: Path, cache: Path) -> None:
    """Another change within the same tick of the clock would not be seen."""
    os.utime(gguf)
    model_identity(gguf)
    assert not cache.exists()


def test_a_place_with_another_file_is_hashed_again(gguf: Path, tmp_path: Path, hashed: list[str]) -> None:
    model_identity(gguf)
    other = tmp_path / "other.gguf"
    other.write_bytes(bytes(_LARGE - 1) + b"\x02")
    other.replace(gguf)
    assert model_identity(gguf) == hashlib.blake2b(bytes(_LARGE - 1) + b"\x02").hexdigest()


def test_a_model_is_the_same_wherever_it_lies(gguf: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere" / "copy.gguf"
    copy.parent.mkdir()
    copy.write_bytes(gguf.read_bytes())
    assert model_identity(copy) == model_identity(gguf)


@pytest.mark.parametrize("damage", [b"", b"{", b'{"digest": 1}'])
def test_a_damaged_cache_is_no_obstacle(gguf: Path, cache: Path, hashed: list[str], damage: bytes) -> None:
    before = model_identity(gguf)
    (entry,) = cache.iterdir()
    entry.write_bytes(damage)
    assert model_identity(gguf) == before == model_identity(gguf)
    assert len(hashed) == 2


def test_a_cache_that_can_not_be_written_is_no_obstacle(
    gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = model_identity(gguf)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert model_identity(gguf) == before


@pytest.mark.parametrize("name", ["openvino_model.bin", "openvino_tokenizer.xml", "chat_template.jinja", "config.json"])
def test_all_that_a_folders_output_depends_on_counts(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "ir"
    folder.mkdir()
    for file in ("openvino_model.xml", "openvino_model.bin", "openvino_tokenizer.xml", "README.md"):
        (folder / file).write_bytes(bytes(_LARGE))
    before = model_identity(folder)
    (folder / "README.md").write_text("new")
    assert model_identity(folder) == before
    (folder / name).write_bytes(bytes(_LARGE // 2) + b"\x01" + bytes(_LARGE // 2 - 1))
    assert model_identity(folder) != before
