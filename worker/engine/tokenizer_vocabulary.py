"""The byte table of an OpenVINO tokenizer."""

from collections.abc import Sequence

import openvino_genai

from worker.engine.interface import EngineLoadError
from worker.engine.text import Vocabulary

_SPACE = b" "
_SPACE_MARK = "▁".encode()
_MAX_ODD_TOKENS = 0.02
"""Maximum share of ids whose text may differ from the tokenizer's decoding; above, loading fails."""


def read_vocabulary(tokenizer: openvino_genai.Tokenizer, pieces: Sequence[bytes]) -> Vocabulary:
    """Return the tokenizer's vocabulary. ``pieces[id]`` are the bytes of a token in the detokenizer.

    Raises :class:`EngineLoadError` when the table does not agree with the tokenizer's decoding.
    """
    ids = range(len(pieces))
    singles = [[token] for token in ids]
    shown: list[str] = tokenizer.decode(singles, skip_special_tokens=True)
    raw: list[str] = tokenizer.decode(singles, skip_special_tokens=False)
    special = {token for token in ids if shown[token] != raw[token]}
    marked = [token for token in ids if _begins_with_one(_SPACE_MARK, pieces[token]) and token not in special]
    if marked and not any("▁" in raw[token] for token in marked):
        # Some detokenizers replace the space mark only after joining the pieces.
        pieces = [piece.replace(_SPACE_MARK, _SPACE) for piece in pieces]
    spaced = [token for token in ids if _begins_with_one(_SPACE, pieces[token]) and token not in special]
    strips = bool(spaced) and not any(raw[token].startswith(" ") for token in spaced)
    fragments = [raw[token] for token in ids if not _is_text(pieces[token])]
    vocabulary = Vocabulary(
        pieces, special, strips_first_space=strips, replaces_invalid=not fragments or any(fragments)
    )
    _compare(vocabulary, raw)
    return vocabulary


def _begins_with_one(mark: bytes, piece: bytes) -> bool:
    return piece.startswith(mark) and not piece.startswith(2 * mark)


def _is_text(piece: bytes) -> bool:
    try:
        piece.decode()
    except UnicodeDecodeError:
        return False
    return True


def _compare(vocabulary: Vocabulary, raw: list[str]) -> None:
    odd = 0
    for token, expected in enumerate(raw):
        text = vocabulary.text(token)
        if vocabulary.strips_first_space:
            text = text.removeprefix(" ")
        if text != expected and not vocabulary.is_fragment(token):
            odd += 1
    if odd > _MAX_ODD_TOKENS * len(raw):
        raise EngineLoadError(
            f"the model's tokenizer can't be used: {odd} of its {len(raw)} tokens decode to a text other than "
            "their own; supported are BPE, Unigram and WordPiece tokenizers"
        )
