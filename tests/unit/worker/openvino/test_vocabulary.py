"""The byte table comes out right for byte-level BPE and for SentencePiece spellings."""

import json
from pathlib import Path
from typing import Any

import pytest

from worker.engine.protocol import EngineLoadError
from worker.engine.text import TextStream, Vocabulary
from worker.openvino.vocabulary import metaspace, read_vocabulary


class StandInTokenizer:
    """Decodes single tokens as ``openvino_genai.Tokenizer`` does."""

    def __init__(self, shown: list[str], special: set[int]) -> None:
        self._shown = shown
        self._special = special

    def decode(self, singles: list[list[int]], *, skip_special_tokens: bool) -> list[str]:
        hidden = self._special if skip_special_tokens else set()
        return ["" if token in hidden else self._shown[token] for (token,) in singles]


def read(pieces: list[bytes], shown: list[str], special: set[int]) -> Vocabulary:
    tokenizer: Any = StandInTokenizer(shown, special)
    return read_vocabulary(tokenizer, pieces)


def text(vocabulary: Vocabulary, tokens: list[int]) -> str:
    stream = TextStream(vocabulary)
    return "".join(stream.push(token) for token in tokens) + stream.finish()


def test_byte_level_pieces_are_taken_as_they_are() -> None:
    emoji = "😀".encode()
    vocabulary = read([b"<|end|>", b"Hi", b" there", emoji[:3], emoji[3:]], ["<|end|>", "Hi", " there", "", ""], {0})
    assert text(vocabulary, [1, 2, 3, 4, 0]) == "Hi there😀"
    assert vocabulary.special == {0}


def test_marks_that_the_tokenizer_shows_as_spaces_become_spaces() -> None:
    pieces = [b"</s>", "▁The".encode(), "▁end".encode(), b"\xe4", b"\xb8", b"\xad", b"\n", "▁▁".encode()]
    vocabulary = read(pieces, ["</s>", "The", "end", "", "", "", "\n", " "], {0})
    assert text(vocabulary, [1, 2, 6, 3, 4, 5, 7, 0]) == "The end\n中  "


def test_pieces_with_spaces_of_their_own_are_taken_as_they_are() -> None:
    vocabulary = read([b"[SEP]", b" hello", b"##", b"ing"], ["[SEP]", "hello", "##", "ing"], {0})
    assert text(vocabulary, [1, 3, 1, 2, 0]) == "helloing hello##"


def test_two_tokens_of_the_same_bytes_both_have_them() -> None:
    vocabulary = read([b"</s>", b"A", b"A"], ["</s>", "A", "A"], {0})
    assert text(vocabulary, [1, 2]) == "AA"


def test_a_sentencepiece_decoder_that_keeps_the_first_space_is_followed() -> None:
    vocabulary = read([b"</s>", "▁The".encode(), b"re"], ["</s>", " The", "re"], {0})
    assert text(vocabulary, [1, 2, 1]) == " There The"


def test_a_mark_that_the_tokenizer_shows_is_a_character() -> None:
    vocabulary = read([b"</s>", "▁x".encode(), b"y"], ["</s>", "▁x", "y"], {0})
    assert text(vocabulary, [2, 1]) == "y▁x"


def test_a_tokenizer_with_other_rules_is_refused() -> None:
    with pytest.raises(EngineLoadError, match="tokenizer can't be used"):
        read([b"</s>", b"##ing", b"##ed"], ["</s>", "ing", "ed"], {0})


@pytest.mark.parametrize(("strips", "first"), [(True, ""), (False, " ")])
def test_marks_that_only_tokenizer_json_replaces_become_spaces(strips: bool, first: str) -> None:
    """Row 9: BPE with a Metaspace decoder, which OpenVINO's detokenizer does not have."""
    tokenizer: Any = StandInTokenizer(["</s>", "▁The", "▁end", "s"], {0})
    pieces = [b"</s>", "▁The".encode(), "▁end".encode(), b"s"]
    assert text(read_vocabulary(tokenizer, pieces, strips), [1, 2, 3, 0]) == f"{first}The ends"
    assert text(read_vocabulary(tokenizer, pieces), [1, 2, 3, 0]) == "▁The▁ends"


@pytest.mark.parametrize(
    ("decoder", "expected"),
    [
        ({"type": "Metaspace", "prepend_scheme": "first"}, True),
        ({"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "Metaspace", "prepend_scheme": "never"}]}, False),
        ({"type": "ByteLevel"}, None),
        (None, None),
    ],
)
def test_the_decoder_of_a_folder_is_read(tmp_path: Path, decoder: object, expected: bool | None) -> None:
    assert metaspace(tmp_path) is None
    (tmp_path / "tokenizer.json").write_text(json.dumps({"version": "1.0", "decoder": decoder, "model": {}}))
    assert metaspace(tmp_path) is expected
