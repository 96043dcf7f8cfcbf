"""The weight cache: what a killed worker leaves, and a disk without space."""

from pathlib import Path

import pytest

from worker.model.cache import cache_folder, cached_folder


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def made(scratch: Path) -> Path:
    (scratch / "model").mkdir()
    return scratch / "model"


def test_what_a_killed_worker_left_is_removed() -> None:
    left = cache_folder() / ".tiny-int8-1-abc"
    left.mkdir(parents=True)
    (left / "half.bin").write_bytes(b"half")
    other = cache_folder() / ".other-int8-1-abc"
    other.mkdir()
    assert cached_folder("tiny-int8-1", made).is_dir()
    assert not left.exists()
    assert other.exists(), "another worker may be making it"


def test_a_full_disk_is_named() -> None:
    def full(scratch: Path) -> Path:
        raise RuntimeError("basic_ios::clear: iostream error")

    with pytest.raises(OSError, match=r"No space left on device, or the disk fails: .*models"):
        cached_folder("tiny-int8-1", full)

    def other(scratch: Path) -> Path:
        raise RuntimeError("an unsupported operation")

    with pytest.raises(RuntimeError, match="unsupported"):
        cached_folder("tiny-int8-1", other)
