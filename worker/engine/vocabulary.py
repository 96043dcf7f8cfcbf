"""Opens a tokenizer for the engine's pipeline whose vocabulary consists of the actual bytes of each token.

OpenVINO GenAI passes the vocabulary of an IR folder's detokenizer to XGrammar as it is stored. SentencePiece stores
``▁`` for a space and ``<0x0A>`` for a byte, which XGrammar takes literally, so a grammar with a space in it can't be
enforced. Therefore the vocabulary is rewritten in a copy of the detokenizer: bytes instead of escapes, and empty for
special tokens, which a grammar never refers to by their text.
"""

import tempfile
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path

import numpy
import openvino
import openvino_genai
from openvino import opset13 as opset

from shared.parsers.formats import MARKERS
from worker.engine.prompts import accept_spelled
from worker.engine.protocol import EngineLoadError
from worker.engine.text import Vocabulary
from worker.model.export import tokenizer_path
from worker.model.files import sees_images

_FILE = "openvino_detokenizer.xml"
_TOKENIZER_FILE = "openvino_tokenizer.xml"
_VOCABULARY = "VocabDecoder"
_JOINING = "FuzeRagged"
_BEGINS, _ENDS, _CHARACTERS, _SKIPPED = 1, 2, 3, 4
"""Inputs of the vocabulary node: begin and end of each token's bytes, all bytes, and the ids to skip."""


def open_tokenizer(path: Path) -> tuple[openvino_genai.Tokenizer, Vocabulary]:
    """Return the tokenizer of the GGUF file or IR folder at ``path`` for a pipeline, and its vocabulary.

    That of a vision-language model takes spelled tokens (:mod:`worker.engine.prompts`).
    Raises :class:`EngineLoadError` when the vocabulary can't be read, :class:`RuntimeError` when OpenVINO fails.
    """
    path = tokenizer_path(path)
    tokenizer = openvino_genai.Tokenizer(str(path))
    vocabulary = read_vocabulary(tokenizer, read_pieces(path, tokenizer))
    # For a GGUF file, OpenVINO GenAI converts the vocabulary itself.
    return (_rewritten(path, vocabulary) if path.is_dir() else tokenizer), vocabulary


def read_pieces(path: Path, tokenizer: openvino_genai.Tokenizer) -> list[bytes]:
    """Return the bytes of each token id of the model at ``path``, special tokens as their text.

    Raises :class:`EngineLoadError` when the IR folder's detokenizer has no vocabulary.
    """
    if not path.is_dir():
        by_id = {token: piece for piece, token in tokenizer.get_vocab().items()}
        return [by_id.get(token, b"") for token in range(max(by_id) + 1)]
    model = _read(path)
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


def _rewritten(folder: Path, vocabulary: Vocabulary) -> openvino_genai.Tokenizer:
    """Return the tokenizer of an IR folder with the bytes of ``vocabulary`` in its detokenizer."""
    rewritten = {_FILE: _rewritten_detokenizer(folder, vocabulary)}
    if sees_images(folder):
        rewritten[_TOKENIZER_FILE] = tokenizer_core().read_model(folder / _TOKENIZER_FILE)
        accept_spelled(rewritten[_TOKENIZER_FILE], len(vocabulary))
    # GenAI reads the tokenizer's settings from several files in the same folder.
    with tempfile.TemporaryDirectory() as scratch:
        for file in folder.iterdir():
            (Path(scratch) / file.name).symlink_to(file.absolute())
        for name, model in rewritten.items():
            for file in (Path(scratch) / name, (Path(scratch) / name).with_suffix(".bin")):
                file.unlink(missing_ok=True)
            openvino.save_model(model, Path(scratch) / name, compress_to_fp16=False)
        return openvino_genai.Tokenizer(scratch)


def _rewritten_detokenizer(folder: Path, vocabulary: Vocabulary) -> openvino.Model:
    model = _read(folder)
    node, last = _vocabulary(folder, model)
    if last is not node:
        first = node.get_output_size() - 3
        for index in range(3):
            for reader in last.output(index).get_target_inputs():
                reader.replace_source_output(node.output(first + index))
    pieces = [_for_grammars(vocabulary, token) for token in range(len(vocabulary))]
    bounds = numpy.array([0, *accumulate(map(len, pieces))], numpy.int32)
    node.input(_BEGINS).replace_source_output(_constant(bounds[:-1]))
    node.input(_ENDS).replace_source_output(_constant(bounds[1:]))
    node.input(_CHARACTERS).replace_source_output(_constant(numpy.frombuffer(b"".join(pieces), numpy.uint8)))
    return model


def _for_grammars(vocabulary: Vocabulary, token: int) -> bytes:
    piece = vocabulary.piece(token)
    return b"" if token in vocabulary.special and piece.decode(errors="replace") not in MARKERS else piece


def _vocabulary(folder: Path, model: openvino.Model) -> tuple[openvino.Node, openvino.Node]:
    """Return the vocabulary lookup node, and the last node that changes the bytes of single tokens."""
    nodes = {node.get_type_name(): node for node in model.get_ordered_ops()}
    vocabulary, joining = nodes.get(_VOCABULARY), nodes.get(_JOINING)
    if vocabulary is None or joining is None:
        raise EngineLoadError(
            f"the detokenizer in {folder} has no vocabulary to read; export the model's tokenizer again with "
            "openvino-tokenizers 2026 or newer"
        )
    return vocabulary, joining.input_value(2).get_node()


def _read(folder: Path) -> openvino.Model:
    return tokenizer_core().read_model(folder / _FILE)


@cache
def tokenizer_core() -> openvino.Core:
    """Return the core that reads and compiles tokenizers."""
    core = openvino.Core()
    # Not imported: the package also loads its converters, which takes longer than reading a vocabulary.
    package = find_spec("openvino_tokenizers")
    if package is None or package.origin is None:
        raise EngineLoadError("the package openvino-tokenizers is not installed")
    core.add_extension(next(Path(package.origin).parent.glob("lib/*openvino_tokenizers*")))
    return core


def _constant(values: numpy.typing.NDArray[numpy.generic]) -> openvino.Output:
    return opset.constant(values).output(0)


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
