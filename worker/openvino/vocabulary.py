"""Opens a tokenizer for the engine's pipeline whose vocabulary consists of the actual bytes of each token.

The pipeline gets token ids, and its output is detokenised here. It needs a tokenizer for grammars only: OpenVINO GenAI
passes the vocabulary of the detokenizer to XGrammar as it is stored. SentencePiece stores ``▁`` for a space and
``<0x0A>`` for a byte, which XGrammar takes literally, so a grammar with a space in it can't be enforced. Therefore a
detokenizer is made: bytes instead of escapes, and empty for special tokens, which a grammar never refers to by their
text.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy
import openvino
import openvino_genai
from openvino import opset13 as opset

from shared.parsers.formats import MARKERS
from worker.engine.protocol import EngineLoadError
from worker.engine.text import Vocabulary
from worker.model.files import sees_images
from worker.model.gguf_tokenizer import read_tokens
from worker.openvino.detokenizer import DETOKENIZER, TOKENIZER, detokenizer, open_models, tokenizer_core
from worker.openvino.prompts import accept_spelled

_BEGINS, _ENDS, _CHARACTERS, _SKIPPED = 1, 2, 3, 4
"""Inputs of the vocabulary node: begin and end of each token's bytes, all bytes, and the ids to skip."""


def open_tokenizer(path: Path) -> tuple[openvino_genai.Tokenizer, Vocabulary]:
    """Return the tokenizer of the GGUF file or IR folder at ``path`` for a pipeline, and its vocabulary.

    That of a GGUF file encodes nothing. That of a vision-language model takes spelled tokens
    (:mod:`worker.openvino.prompts`). Raises :class:`EngineLoadError` when the vocabulary can't be read,
    :class:`RuntimeError` when OpenVINO fails.
    """
    files: dict[str, openvino.Model] = {}
    if path.is_dir():
        tokenizer = openvino_genai.Tokenizer(str(path))
        vocabulary = read_vocabulary(tokenizer, read_pieces(path), metaspace(path))
        if sees_images(path):
            files[TOKENIZER] = tokenizer_core().read_model(path / TOKENIZER)
            accept_spelled(files[TOKENIZER], len(vocabulary))
    else:
        tokens = read_tokens(path)
        vocabulary = Vocabulary(
            tokens.pieces, tokens.special, strips_first_space=tokens.adds_space, end_tokens=tokens.ends
        )
    files[DETOKENIZER] = detokenizer(
        [_for_grammars(vocabulary, token) for token in range(len(vocabulary))], vocabulary.special
    )
    if path.is_dir():
        return open_models(files, {file.name: file for file in path.iterdir()}), vocabulary
    ids = {"eos_token_id": tokens.eos, "bos_token_id": tokens.bos, "pad_token_id": tokens.eos}
    return open_models(files, {"config.json": ids}), vocabulary


def read_pieces(path: Path) -> list[bytes]:
    """Return the bytes of each token id of the IR folder at ``path``, special tokens as their text.

    Raises :class:`EngineLoadError` when its detokenizer has no vocabulary.
    """
    model = tokenizer_core().read_model(path / DETOKENIZER)
    vocabulary, last = _vocabulary(path, model)
    first = 0 if last is not vocabulary else last.get_output_size() - 3
    if vocabulary.get_input_size() > _SKIPPED:
        vocabulary.input(_SKIPPED).replace_source_output(_constant(numpy.zeros(0, numpy.int32)))
    texts = [opset.result(last.output(first + index)) for index in range(3)]
    count = len(vocabulary.input_value(_BEGINS).get_node().get_data())
    every = numpy.arange(count, dtype=numpy.int64)[None]
    spelled = openvino.Model(texts, model.get_parameters(), "vocabulary")
    begins, ends, characters = tokenizer_core().compile_model(spelled, "CPU")(every).values()
    data = characters.tobytes()
    return [data[begin:end] for begin, end in zip(begins, ends, strict=True)]


def _for_grammars(vocabulary: Vocabulary, token: int) -> bytes:
    piece = vocabulary.piece(token)
    return b"" if token in vocabulary.special and piece.decode(errors="replace") not in MARKERS else piece


def _vocabulary(folder: Path, model: openvino.Model) -> tuple[openvino.Node, openvino.Node]:
    """Return the vocabulary lookup node, and the last node that changes the bytes of single tokens."""
    nodes = {node.get_type_name(): node for node in model.get_ordered_ops()}
    vocabulary, joining = nodes.get("VocabDecoder"), nodes.get("FuzeRagged")
    if vocabulary is None or joining is None:
        raise EngineLoadError(
            f"the detokenizer in {folder} has no vocabulary to read; export the model's tokenizer again with "
            "openvino-tokenizers 2026 or newer"
        )
    return vocabulary, joining.input_value(2).get_node()


def _constant(values: numpy.typing.NDArray[numpy.generic]) -> openvino.Output:
    return opset.constant(values).output(0)


_SPACE = b" "
_SPACE_MARK = "▁".encode()
_MAX_ODD_TOKENS = 0.02
"""Maximum share of ids whose text may differ from the tokenizer's decoding; above, loading fails."""


class _TokenizerFile(msgspec.Struct):
    """The part of a ``tokenizer.json`` that is read here."""

    decoder: dict[str, Any] | None = None


def metaspace(path: Path) -> bool | None:
    """Return whether texts begin with a space that is not written, by ``tokenizer.json`` in the folder at ``path``.

    None unless its decoder is a Metaspace, which some detokenizers lack.
    """
    try:
        own = msgspec.json.decode((path / "tokenizer.json").read_bytes(), type=_TokenizerFile).decoder or {}
    except (OSError, msgspec.DecodeError):
        return None
    found = next((one for one in own.get("decoders", [own]) if one.get("type") == "Metaspace"), None)
    return None if found is None else found.get("prepend_scheme", "always") != "never"


def read_vocabulary(
    tokenizer: openvino_genai.Tokenizer, pieces: Sequence[bytes], metaspace: bool | None = None
) -> Vocabulary:
    """Return the tokenizer's vocabulary. ``pieces[id]`` are the bytes of a token in the detokenizer, ``metaspace`` is
    that of the folder.

    Raises :class:`EngineLoadError` when the table does not agree with the tokenizer's decoding.
    """
    ids = range(len(pieces))
    singles = [[token] for token in ids]
    shown: list[str] = tokenizer.decode(singles, skip_special_tokens=True)
    raw: list[str] = tokenizer.decode(singles, skip_special_tokens=False)
    special = {token for token in ids if shown[token] != raw[token]}
    if metaspace is not None and any("▁" in raw[token] for token in ids if token not in special):
        raw = [text if token in special else _without_marks(text, strips=metaspace) for token, text in enumerate(raw)]
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


def _without_marks(text: str, *, strips: bool) -> str:
    spaced = text.replace("▁", " ")
    return spaced.removeprefix(" ") if strips else spaced


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
