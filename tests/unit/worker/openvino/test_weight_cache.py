"""Weights made at the first start: when, once, and what happens where they can't be."""

import logging
import os
import shutil
import threading
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from filelock import FileLock

from shared.runtime.settings import EngineSettings
from worker.model import files
from worker.model.cache import cache_folder
from worker.model.files import read_properties, write_properties
from worker.model.local import ModelError
from worker.openvino import int8, weights
from worker.openvino.int8 import DamagedModel
from worker.openvino.options import OpenVINOOptions
from worker.openvino.weights import serving_path


class _Readable:
    needs_export, is_readable, is_exact = False, True, True


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Path]:
    """What was made, in place of the minutes that a model takes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made: list[Path] = []

    def remake(original: Path, scratch: Path) -> Path:
        (scratch / "result").mkdir()
        made.append(original)
        return scratch / "result"

    monkeypatch.setattr(int8, "export_gguf", lambda path, context_length, scratch, **_: Path("original"))
    monkeypatch.setattr(int8, "remake", remake)
    monkeypatch.setattr(weights, "GGUFModel", lambda path: _Readable)
    return made


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    file = tmp_path / "small.gguf"
    file.write_bytes(b"weights")
    return file


def _options(path: Path, **settings: Any) -> OpenVINOOptions:
    return OpenVINOOptions.from_settings(EngineSettings(**settings), path=str(path), context_length=64)


def _ignore(stage: str) -> None:
    pass


def test_they_are_made_once(gguf: Path, made: list[Path]) -> None:
    stages: list[str] = []
    first = serving_path(_options(gguf), stages.append)
    assert first.parent == cache_folder()
    assert stages == ["making int8 weights of small.gguf (0 MB), once; --weights original does without"]
    assert serving_path(_options(gguf), stages.append) == first
    assert (len(made), len(stages)) == (1, 1)
    # Neither a lock that is held nor a scratch folder stays.
    assert sorted(path.name for path in cache_folder().iterdir() if path.is_dir()) == [first.name]


def test_a_worker_that_waits_for_another_says_so(gguf: Path, made: list[Path]) -> None:
    first = serving_path(_options(gguf), _ignore)
    first.rmdir()
    stages: Queue[str] = Queue()
    with FileLock(first.with_name(f"{first.name}.lock")):
        waiting = threading.Thread(target=serving_path, args=(_options(gguf), stages.put))
        waiting.start()
        assert stages.get(timeout=60) == "making int8 weights of small.gguf in another worker"
    waiting.join()
    assert len(made) == 2


def test_another_file_of_the_same_name_is_another_model(gguf: Path) -> None:
    first = serving_path(_options(gguf), _ignore)
    gguf.write_bytes(b"other weights")
    assert serving_path(_options(gguf), _ignore) != first


def test_a_repaired_file_of_the_same_size_is_converted_again(gguf: Path, made: list[Path]) -> None:
    ends = b"e" * (1 << 20)
    gguf.write_bytes(ends + b"damaged!" + ends)
    first = serving_path(_options(gguf), _ignore)
    gguf.write_bytes(ends + b"repaired" + ends)
    assert serving_path(_options(gguf), _ignore) != first
    assert len(made) == 2


def test_a_file_that_changes_while_it_is_converted_leaves_nothing(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def change(original: Path, scratch: Path) -> Path:
        (scratch / "result").mkdir()
        gguf.write_bytes(b"WEIGHTS")
        return scratch / "result"

    monkeypatch.setattr(int8, "remake", change)
    with pytest.raises(OSError, match="was changed while it was read"):
        serving_path(_options(gguf, weights="int8"), _ignore)
    assert [path for path in cache_folder().iterdir() if path.is_dir()] == []


def test_a_damaged_file_is_not_served_at_all(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise DamagedModel("not finite")

    monkeypatch.setattr(int8, "remake", refuse)
    for setting in ("auto", "int8"):
        with pytest.raises(DamagedModel):
            serving_path(_options(gguf, weights=setting), _ignore)


def test_what_nobody_has_loaded_for_long_makes_room(gguf: Path) -> None:
    used, unused = (gguf.with_name(name) for name in ("used.gguf", "unused.gguf"))
    for file in (used, unused):
        file.write_bytes(file.name.encode())
        long_ago = serving_path(_options(file), _ignore)
        os.utime(long_ago, (0, 0))
    kept_used = serving_path(_options(used), _ignore)
    made_now = serving_path(_options(gguf), _ignore)
    assert sorted(path for path in cache_folder().iterdir() if path.is_dir()) == sorted([kept_used, made_now])


@pytest.mark.parametrize(
    "settings",
    [{"weights": "original"}, {"precision": "exact"}, {"device": "GPU"}],
    ids=["not wanted", "rounding is forbidden", "not known to be better"],
)
def test_the_file_itself_is_served(gguf: Path, settings: dict[str, Any], made: list[Path]) -> None:
    assert serving_path(_options(gguf, **settings), _ignore) == gguf
    assert made == []


@pytest.mark.parametrize(
    ("size", "amx", "cpus", "converts"),
    [(4, True, 16, True), (4, False, 16, False), (4, True, 17, False), (9, True, 16, False), (3, False, 64, True)],
    ids=["with AMX", "without AMX", "bandwidth may be short", "it would take too long", "a small one everywhere"],
)
def test_larger_files_are_converted_where_it_makes_them_faster(
    size: int, amx: bool, cpus: int, converts: bool, gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"SMALL_MODEL": 3, "_LARGEST": 8, "has_amx": lambda: amx}.items():
        monkeypatch.setattr(weights, name, value)
    monkeypatch.setattr(weights, "usable_cpus", lambda: cpus)
    gguf.write_bytes(b"w" * size)
    assert (serving_path(_options(gguf), _ignore) != gguf) is converts
    assert serving_path(_options(gguf, weights="int8", device="GPU.1"), _ignore) != gguf
    assert serving_path(_options(gguf, weights="original"), _ignore) == gguf


def test_a_conversion_that_does_not_fit_is_not_begun(
    gguf: Path, made: list[Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(int8, "model_bytes", lambda path: 100_000_000)
    monkeypatch.setattr(weights, "free_memory", lambda: 300_000_000)
    with caplog.at_level(logging.WARNING):
        assert serving_path(_options(gguf), _ignore) == gguf
    assert "It takes up to 0.5 GB of memory, and 0.3 GB are free" in caplog.text
    assert made == []
    # One that is there already is used.
    converted = serving_path(_options(gguf, weights="int8"), _ignore)
    assert serving_path(_options(gguf), _ignore) == converted
    shutil.rmtree(converted)
    usage = shutil.disk_usage(gguf)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=200_000_000))
    with pytest.raises(ModelError, match=r"0\.7 GB of disk space, and 0\.2 GB are free"):
        serving_path(_options(gguf, weights="int8"), _ignore)


def test_folders_are_served_as_they_are(tmp_path: Path) -> None:
    assert serving_path(_options(tmp_path), _ignore) == tmp_path
    with pytest.raises(ModelError, match="optimum-cli export openvino"):
        serving_path(_options(tmp_path, weights="int8"), _ignore)


@pytest.mark.parametrize("kind", [OSError, RuntimeError], ids=["Python's own", "OpenVINO's"])
def test_without_room_the_file_itself_is_served_unless_int8_was_asked_for(
    kind: type[Exception], gguf: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise kind("No space left on device")

    monkeypatch.setattr(int8, "remake", full)
    with caplog.at_level(logging.WARNING):
        assert serving_path(_options(gguf), _ignore) == gguf
    assert "No space left on device" in caplog.text
    with pytest.raises(kind, match="No space"):
        serving_path(_options(gguf, weights="int8"), _ignore)
    assert [path for path in cache_folder().iterdir() if path.is_dir()] == []


def test_a_folder_states_the_properties_that_suit_it(tmp_path: Path) -> None:
    assert read_properties(tmp_path, "CPU") == {}
    write_properties(tmp_path, {"CPU": {"DYNAMIC_QUANTIZATION_GROUP_SIZE": 64}})
    assert read_properties(tmp_path, "CPU") == {"DYNAMIC_QUANTIZATION_GROUP_SIZE": 64}
    assert read_properties(tmp_path, "GPU.1") == {}
    write_properties(tmp_path, {})
    assert read_properties(tmp_path, "CPU") == {}


def test_a_particular_kind_of_cpu_has_its_own_properties_over_those_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_properties(tmp_path, {"CPU": {"A": 1, "B": 2}, "CPU avx512_bf16": {"B": 3}, "GPU": {"A": 4}})
    for kinds, stated in [(("CPU",), {"A": 1, "B": 2}), (("CPU", "CPU avx512_bf16"), {"A": 1, "B": 3})]:
        monkeypatch.setattr(files, "device_kinds", lambda _, kinds=kinds: kinds)
        assert read_properties(tmp_path, "CPU") == stated
