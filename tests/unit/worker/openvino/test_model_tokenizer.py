"""The tokenizer of an IR folder is its tokenizer.json, if that has the same vocabulary."""

import shutil
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, models

from worker.openvino.model_tokenizer import open_tokenizer

MODEL = Path(__file__).parents[3] / "models" / "qwen2-byte-level-bpe"
SPECIAL = {"<|endoftext|>": 420, "<|im_start|>": 421, "<|im_end|>": 422}
A, B, THE = 64, 65, 259
TEXT = "a<|im_end|>für bfür"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    copy = tmp_path / "model"
    shutil.copytree(MODEL, copy, ignore=shutil.ignore_patterns("openvino_model.*"))
    return copy


def _write(folder: Path, special: dict[str, int]) -> None:
    """Write a tokenizer with few tokens, one of which OpenVINO's does not find, and that truncates texts."""
    own = Tokenizer(models.BPE({"a": A, "b": B, "für": THE, **special}, []))
    own.add_special_tokens([AddedToken(text, normalized=False) for text in special])
    own.add_tokens([AddedToken("für", single_word=True, normalized=True)])
    own.enable_truncation(2)
    own.save(str(folder / "tokenizer.json"))


def test_texts_are_encoded_by_tokenizer_json(folder: Path) -> None:
    """Row 9: words of their own, beyond ASCII, and no others."""
    _write(folder, SPECIAL)
    tokenizer = open_tokenizer(folder, "")
    assert tokenizer.encode([TEXT]) == [[A, SPECIAL["<|im_end|>"], THE, B]]
    assert tokenizer.decode((A, SPECIAL["<|im_end|>"])) == "a <|im_end|>"


@pytest.mark.parametrize("content", ["nonsense", '{"version": "2.0"}'])
def test_one_that_cannot_be_read_is_a_warning(folder: Path, content: str, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "tokenizer.json").write_text(content)
    assert open_tokenizer(folder, "").encode([TEXT]) == open_tokenizer(MODEL, "").encode([TEXT])
    assert "tokenizer.json can't be read" in caplog.text


def test_that_of_another_vocabulary_is_a_warning(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    _write(folder, {"<|endoftext|>": 420, "<|im_start|>": 422, "<|im_end|>": 421})
    assert open_tokenizer(folder, "").encode([TEXT]) == open_tokenizer(MODEL, "").encode([TEXT])
    assert "<|im_start|>, <|im_end|> differ" in caplog.text
