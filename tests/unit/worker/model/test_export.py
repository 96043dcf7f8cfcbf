"""Tokenizers of GGUF files in the weight cache: made once, equal to those of the files, and dispensable."""

from pathlib import Path
from typing import Any

import pytest

from shared.protocol.request import ChatRequest, Message
from tests.support.gguf_files import tiny_llama
from worker.engine.vocabulary import open_tokenizer
from worker.model.cache import cache_folder
from worker.model.export import cached_form, tokenizer_path
from worker.prompt.openvino import load_prompt_maker

TEXT = "the thing<|im_end|>, says é"
REQUESTS = (
    ChatRequest(model="m", messages=(Message(role="user", content=TEXT),)),
    ChatRequest(model="m", prompts=(TEXT,)),
)


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    file = tmp_path / "small.gguf"
    file.write_bytes(tiny_llama())
    return file


def _entries() -> list[str]:
    return [path.name for path in cache_folder().iterdir() if path.is_dir()] if cache_folder().is_dir() else []


def _opened(file: Path) -> tuple[Any, ...]:
    """What the engine and the prompt process have of a tokenizer."""
    tokenizer, vocabulary = open_tokenizer(file)
    maker = load_prompt_maker(str(file), context_length=64)
    return (
        tokenizer.encode(TEXT).input_ids.data.tolist(),
        tokenizer.get_eos_token_id(),
        [vocabulary.piece(token) for token in range(len(vocabulary))],
        vocabulary.special,
        [maker.prepare(request) for request in REQUESTS],
        [maker.plan(request) for request in REQUESTS],
    )


def test_it_is_made_once_and_equals_the_files_own(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached = _opened(gguf)
    assert tokenizer_path(gguf).parent == cache_folder()
    assert _entries() == [tokenizer_path(gguf).name]
    for user in ("worker.engine.vocabulary", "worker.prompt.openvino"):
        monkeypatch.setattr(f"{user}.tokenizer_path", lambda path: path)
    assert cached == _opened(gguf)


def test_a_file_that_was_changed_gets_another(gguf: Path) -> None:
    first = tokenizer_path(gguf)
    gguf.write_bytes(tiny_llama(layers=2))
    assert tokenizer_path(gguf) not in (first, gguf)


def test_a_form_has_a_folder_for_each_set_of_what_it_depends_on(gguf: Path) -> None:
    def make(scratch: Path) -> Path:
        (scratch / "made").mkdir()
        return scratch / "made"

    made = [cached_form("form", gguf, depends_on, make) for depends_on in ((), ("1",), ("2",), ("1",))]
    assert made[1] == made[3]
    assert len(set(made)) == 3


def test_folders_are_opened_themselves(tmp_path: Path) -> None:
    assert tokenizer_path(tmp_path) == tmp_path
    assert _entries() == []


def test_a_file_that_cannot_be_cached_is_opened_itself(gguf: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("not a folder")
    assert tokenizer_path(gguf) == gguf
    assert tokenizer_path(tmp_path / "missing.gguf") == tmp_path / "missing.gguf"


def test_a_file_that_is_no_model_leaves_nothing(gguf: Path) -> None:
    gguf.write_bytes(b"no model")
    assert tokenizer_path(gguf) == gguf
    assert _entries() == []
