"""The tokenizer of a GGUF file, as its header states it, with the meaning that llama.cpp gives it."""

import os
import re
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from worker.model.gguf import GGUFError, Header, read_array, read_header
from worker.model.pre_tokenizers import PRE_TOKENIZERS, PreTokenizer

if TYPE_CHECKING:
    import tokenizers

_UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = 2, 3, 4, 5, 6
"""Types of tokens other than ordinary ones (1). Unused ones fill up the vocabulary."""

SENTENCE_PIECE = "llama"
"""The value of ``tokenizer.ggml.model`` for SentencePiece vocabularies; byte-level BPE is "gpt2"."""

_ENDS = frozenset({
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
    "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>",
    "<end_of_utterance>", "<eos>", "<｜end▁of▁sentence｜>",  # noqa: RUF001
})  # fmt: skip
"""Tokens that end an output wherever they are control or user-defined tokens."""

_BYTES = re.compile(r"<0x([0-9A-F]{2})>")
_SPACE_MARK = "▁"


class GgufTokens(NamedTuple):
    """The vocabulary of a GGUF file.

    ``pieces[id]`` are the bytes of a token. ``special`` are the ids of control tokens. ``added`` are the texts, by id,
    that are tokens wherever they occur in a text. ``bos`` and ``eos`` are None without, ``ends`` end an output.
    ``adds_bos``: plain prompts begin with BOS. ``adds_space``: a text begins with a space that is not written.
    """

    pieces: list[bytes]
    special: frozenset[int]
    added: dict[int, str]
    bos: int | None
    eos: int | None
    ends: frozenset[int]
    adds_bos: bool
    adds_space: bool

    def text(self, token: int | None) -> str:
        """Return the text of a token; empty for None."""
        return "" if token is None else self.pieces[token].decode(errors="replace")


def read_tokens(path: Path) -> GgufTokens:
    """Return the vocabulary of the GGUF file at ``path``, whose header has been checked.

    Raises :class:`GGUFError` for a file without one.
    """
    header = read_header(path)
    metadata = header.metadata
    texts = _texts(path, header)
    types = _array(path, header, "token_type") or [1] * len(texts)
    if not texts or len(types) != len(texts):
        raise GGUFError(f"{path} has {len(texts)} tokens and {len(types)} types of tokens")
    sentence_piece = metadata["tokenizer.ggml.model"] == SENTENCE_PIECE
    piece = _sentence_piece if sentence_piece else _byte_level()
    pieces = [
        b"" if kind == _UNUSED else piece(text) if kind in (1, _BYTE) else text.encode()
        for text, kind in zip(texts, types, strict=True)
    ]
    added = {
        token: text
        for token, (text, kind) in enumerate(zip(texts, types, strict=True))
        if text and kind in (_UNKNOWN, _CONTROL, _USER_DEFINED)
    }

    def token(name: str) -> int | None:
        value = metadata.get(f"tokenizer.ggml.{name}_token_id")
        return value if isinstance(value, int) and 0 <= value < len(texts) else None

    bos, eos = token("bos"), token("eos")
    ends = {end for end in (eos, token("eot"), token("eom")) if end is not None}
    named = {text: number for number, text in added.items() if text in _ENDS}
    ends.update(named.values())
    if {"<|call|>", "<|calls|>"} & named.keys() and {"<|return|>", "<|flush|>"} & named.keys():
        ends.discard(named.get("<|end|>"))  # Here it ends a part of an output.
    added |= {end: texts[end] for end in ends}
    adds_bos = metadata.get("tokenizer.ggml.add_bos_token", sentence_piece or _pre_tokenizer(header).bos)
    return GgufTokens(
        pieces,
        frozenset(token for token in added if types[token] != _USER_DEFINED) | ends,
        added,
        bos,
        eos,
        frozenset(ends),
        bool(adds_bos) and bos is not None,
        sentence_piece and bool(metadata.get("tokenizer.ggml.add_space_prefix", True)),
    )


def _pre_tokenizer(header: Header) -> PreTokenizer:
    return PRE_TOKENIZERS[str(header.metadata.get("tokenizer.ggml.pre") or "default")]


def _array(path: Path, header: Header, name: str) -> list[Any]:
    array = header.arrays.get(f"tokenizer.ggml.{name}")
    return read_array(path, array) if array else []


def _texts(path: Path, header: Header) -> list[str]:
    return [text.decode(errors="replace") for text in _array(path, header, "tokens")]


def _byte_level() -> Callable[[str], bytes]:
    """Return what decodes the text of a byte-level token: GPT-2's alphabet has a printable character for each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {byte: byte for byte in printable} | {256 + number: byte for number, byte in enumerate(others)}

    def decode(text: str) -> bytes:
        try:
            return text.translate(alphabet).encode("latin-1")
        except UnicodeEncodeError:  # not all of it is in the alphabet
            return b"".join(bytes([alphabet[ord(one)]]) if ord(one) in alphabet else one.encode() for one in text)

    return decode


def _sentence_piece(text: str) -> bytes:
    byte = _BYTES.fullmatch(text)
    return bytes([int(byte[1], 16)]) if byte else text.replace(_SPACE_MARK, " ").encode()


def load_tokenizer(path: Path, tokens: GgufTokens) -> "tokenizers.Tokenizer":
    """Return the tokenizer of the GGUF file at ``path``, which encodes texts; ``tokens`` are its vocabulary."""
    import tokenizers
    from tokenizers import models, normalizers, pre_tokenizers

    header = read_header(path)
    texts = _texts(path, header)
    ids = {text: token for token, text in enumerate(texts)}
    if header.metadata["tokenizer.ggml.model"] == SENTENCE_PIECE:
        merges = _merges_by_score(ids, texts, _array(path, header, "scores") or [0.0] * len(texts))
        tokenizer = tokenizers.Tokenizer(models.BPE(ids, merges, byte_fallback=True, fuse_unk=True))
        steps = [normalizers.Prepend(_SPACE_MARK)] if tokens.adds_space else []
        tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", _SPACE_MARK)])
    else:
        kind = _pre_tokenizer(header)
        pairs = [tuple(merge.decode(errors="replace").split(" ", 1)) for merge in _array(path, header, "merges")]
        merges = [pair for pair in pairs if len(pair) == 2 and "".join(pair) in ids]
        tokenizer = tokenizers.Tokenizer(models.BPE(ids, merges, ignore_merges=kind.whole_words))
        splits = [pre_tokenizers.Split(tokenizers.Regex(one), "isolated") for one in kind.expressions]
        bytes_of = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splits, bytes_of])
    tokenizer.add_special_tokens([tokenizers.AddedToken(text, normalized=False) for text in tokens.added.values()])
    return tokenizer


def _merges_by_score(ids: dict[str, int], texts: list[str], scores: Sequence[float]) -> list[tuple[str, str]]:
    """Return the pairs that SentencePiece joins, in its order: the result with the highest score first."""
    best = sorted(range(len(texts)), key=lambda token: -scores[token])
    halves = (
        sorted(
            (pair for at in range(1, len(text)) if (pair := (text[:at], text[at:]))[0] in ids and pair[1] in ids),
            key=lambda pair: (ids[pair[0]], ids[pair[1]]),
        )
        for text in (texts[token] for token in best)
        if len(text) > 1
    )
    return list(chain.from_iterable(halves))


def encoder(tokenizer: "tokenizers.Tokenizer") -> Callable[[Sequence[str]], list[list[int]]]:
    """Return what encodes texts with ``tokenizer``, in this thread and without special tokens at the ends."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"

    def encode(texts: Sequence[str]) -> list[list[int]]:
        return [one.ids for one in tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]

    return encode
