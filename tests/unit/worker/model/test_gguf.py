"""Reading the metadata of GGUF files, whole, cut short and hostile."""

import struct
from pathlib import Path

import pytest

from tests.support.gguf_files import gguf_bytes
from worker.model.gguf import GGUFError, Tensor, read_array, read_header


def _write(folder: Path, data: bytes) -> Path:
    file = folder / "model.gguf"
    file.write_bytes(data)
    return file


@pytest.mark.parametrize("version", [2, 3])
def test_scalars_and_arrays_are_read(tmp_path: Path, version: int) -> None:
    data = gguf_bytes(
        {
            "general.architecture": "llama",
            "tokenizer.ggml.tokens": ["a", "bc", "日本"],
            "numbers": [1, 2, 3],
            "llama.context_length": 8192,
            "flag": True,
            "base": 0.5,
        },
        version=version,
    )
    file = _write(tmp_path, data)
    header = read_header(file)
    assert header.metadata == {
        "general.architecture": "llama",
        "llama.context_length": 8192,
        "flag": True,
        "base": 0.5,
    }
    arrays = {key: read_array(file, array) for key, array in header.arrays.items()}
    assert arrays == {"tokenizer.ggml.tokens": [b"a", b"bc", "日本".encode()], "numbers": [1, 2, 3]}


def test_every_shorter_file_is_refused_by_name(tmp_path: Path) -> None:
    data = gguf_bytes({"name": "text", "tokens": ["a", "bc"], "numbers": [1, 2], "length": 7})
    for length in range(len(data)):
        file = _write(tmp_path, data[:length])
        with pytest.raises(GGUFError, match=r"model\.gguf .*complete"):
            read_header(file)


def test_a_file_without_all_of_its_tensors_says_how_much_is_there(tmp_path: Path) -> None:
    data = gguf_bytes({"name": "text"}, tensors={"token_embd.weight": 500_000, "output.weight": 1_000_000})
    header = read_header(_write(tmp_path, data))
    assert header.metadata == {"name": "text"}
    assert header.tensors["output.weight"] == Tensor((1_000_000,), 0, len(data) - 4_000_000)
    with pytest.raises(GGUFError, match=r"model\.gguf .* ends at 4 MB of 6 MB; is the download complete\?"):
        read_header(_write(tmp_path, data[:4_000_000]))
    with pytest.raises(GGUFError, match=rf"ends at {len(data) - 1} of {len(data)} bytes"):
        read_header(_write(tmp_path, data[:-1]))


def test_descriptions_of_tensors_that_are_cut_short_are_refused(tmp_path: Path) -> None:
    data = gguf_bytes({"name": "text"}, tensors={"a": 8, "b": 8})
    for length in range(len(gguf_bytes({"name": "text"})), len(data)):
        with pytest.raises(GGUFError, match="complete"):
            read_header(_write(tmp_path, data[:length]))


def _header(pairs: bytes, count: int = 1, version: int = 3, tensors: int = 0) -> bytes:
    return struct.pack("<4sIQQ", b"GGUF", version, tensors, count) + pairs


_KEY = struct.pack("<Q", 1) + b"k"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"<!DOCTYPE html><html><body>not found</body></html>", "starts with"),
        (_header(b"", version=1), "version 1"),
        (_header(b"", count=1 << 40), "metadata entries"),
        (_header(b"", count=0, tensors=1 << 40), "tensors"),
        (_header(struct.pack("<QI", 0, 1 << 31), count=0, tensors=1), "dimensions"),
        (_header(struct.pack("<Q", 1 << 62)), "complete"),
        (_header(_KEY + struct.pack("<IQ", 8, 1 << 63)), "complete"),
        (_header(_KEY + struct.pack("<I", 99)), "unknown type 99"),
        (_header(_KEY + struct.pack("<IIQ", 9, 8, 1 << 60)), "claims"),
        (_header(_KEY + struct.pack("<IIQ", 9, 8, 3) + b"\xff" * 64), "complete"),
        (_header(_KEY + struct.pack("<IIQ", 9, 9, 3) + bytes(64)), "items of type 9"),
        (_header(struct.pack("<Q", 70_000) + bytes(80_000)), "key of more than"),
    ],
)
def test_hostile_headers_are_refused_with_the_reason(tmp_path: Path, data: bytes, reason: str) -> None:
    with pytest.raises(GGUFError, match=reason):
        read_header(_write(tmp_path, data))


def test_texts_that_are_too_long_are_left_out(tmp_path: Path) -> None:
    data = gguf_bytes({"long": "x" * (2 << 20), "after": 1})
    assert read_header(_write(tmp_path, data)).metadata == {"after": 1}
