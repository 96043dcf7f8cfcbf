"""The byte table of an OpenVINO tokenizer."""

import openvino_genai

from worker.engine.interface import EngineLoadError
from worker.engine.text import Vocabulary

_SPACE_MARK = "▁".encode()
_BYTE_PIECES = {f"<0x{byte:02X}>".encode(): bytes([byte]) for byte in range(256)}
_MOST_ODD_TOKENS = 0.02
"""Share of the ids whose own text may differ from the tokenizer's decoding of them before loading fails."""


def read_vocabulary(tokenizer: openvino_genai.Tokenizer) -> Vocabulary:
    """Return what each id of the tokenizer stands for.

    ``get_vocab()`` gives raw bytes for byte-level BPE, but SentencePiece's own spelling ('▁' for a space,
    '<0x0A>' for a byte) for the other family; which one it is shows in how the tokenizer decodes.
    Raises :class:`EngineLoadError` when the table does not agree with the tokenizer's decoding.
    """
    by_id = {token: piece for piece, token in tokenizer.get_vocab().items()}
    ids = range(max(by_id) + 1)
    singles = [[token] for token in ids]
    shown: list[str] = tokenizer.decode(singles, skip_special_tokens=True)
    raw: list[str] = tokenizer.decode(singles, skip_special_tokens=False)
    special = {token for token in ids if shown[token] != raw[token]}
    pieces = [by_id.get(token, b"") for token in ids]
    marked = [token for token in ids if _begins_with_one_mark(pieces[token]) and token not in special]
    is_sentencepiece = bool(marked) and not any("▁" in raw[token] for token in marked)
    if is_sentencepiece:
        pieces = [_spelled_out(piece) for piece in pieces]
    strips = is_sentencepiece and not any(raw[token].startswith(" ") for token in marked)
    vocabulary = Vocabulary(pieces, special, strips_first_space=strips)
    _compare(vocabulary, raw)
    return vocabulary


def _begins_with_one_mark(piece: bytes) -> bool:
    return piece.startswith(_SPACE_MARK) and not piece.startswith(2 * _SPACE_MARK)


def _spelled_out(piece: bytes) -> bytes:
    return _BYTE_PIECES.get(piece) or piece.replace(_SPACE_MARK, b" ")


def _compare(vocabulary: Vocabulary, raw: list[str]) -> None:
    odd = 0
    for token, expected in enumerate(raw):
        text = vocabulary.text(token)
        if vocabulary.strips_first_space:
            text = text.removeprefix(" ")
        if text != expected and not vocabulary.is_fragment(token):
            odd += 1
    if odd > _MOST_ODD_TOKENS * len(raw):
        raise EngineLoadError(
            f"the model's tokenizer can't be used: {odd} of its {len(raw)} tokens decode to a text other than "
            "their own; supported are byte-level BPE and SentencePiece tokenizers"
        )
