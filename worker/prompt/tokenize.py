"""Encodes text of any length with a tokenizer that silently truncates long strings.

OpenVINO GenAI's tokenizer returns at most ``cap`` tokens per string (8,192 for a GGUF model). Longer texts are split
where its pre-tokeniser splits anyway, between a letter and a space before a letter, so that the tokens are those of the
whole text.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from worker.prompt.specials import SpecialTexts

RawEncode = Callable[[Sequence[str]], list[list[int]]]
"""A tokenizer's encoding of several strings. Special texts become special tokens; no tokens are added at the ends."""

Decode = Callable[[tuple[int, ...]], str]
"""A tokenizer's decoding, with special tokens."""

_PROBE = "a " * 40_000
_ANCHOR = "\n"
_BYTES_PER_CHARACTER = 4
_MAX_PARTS = 256
"""Parts per call. A call takes 200 µs, a short string in it 3 µs, and a client can cause many parts."""


class ModelTokenizer(NamedTuple):
    """A tokenizer, and what it says about the vocabulary.

    ``pieces[id]`` are the bytes of a token. ``special`` are the texts of control tokens by id, ``protected`` those that
    texts of clients must not form. ``begin`` are the ids at the start of every plain prompt, ``ends`` those that end an
    output, ``bos`` and ``eos`` are texts. ``template`` is the copy of the chat template inside of the tokenizer; empty
    without.
    """

    encode: RawEncode
    decode: Decode
    pieces: Sequence[bytes]
    special: dict[int, str]
    protected: dict[int, str]
    begin: tuple[int, ...]
    ends: frozenset[int]
    bos: str
    eos: str
    template: str = ""


class Encoder:
    """Encodes pieces of text of any length."""

    def __init__(self, encode: RawEncode, specials: SpecialTexts) -> None:
        self._encode = encode
        self._specials = specials
        probe, joined, left, right, self._anchor = encode([_PROBE, "a b", "a", " b", _ANCHOR])
        self._cap = len(probe)
        # At most one token per byte (byte fallback), with a margin for normalisers that lengthen text.
        self._piece_bytes = self._cap - self._cap // 8
        # SentencePiece tokenizers put a space before every string, which must not happen to pieces in the middle.
        self._adds_space = joined != left + right

    def encode(self, pieces: Iterable[str], *, limit: int, at_start: bool = True) -> tuple[list[int], bool]:
        """Return the token ids of the separately encoded pieces, and whether they are complete.

        Stops early once there are more than ``limit`` ids. ``at_start``: whether the pieces start the prompt.
        """
        ids: list[int] = []
        for group in self._groups(pieces):
            if len(ids) > limit:
                return ids, False
            for part_ids in self._encode_parts(group, at_start=at_start and not ids):
                ids += part_ids
        return ids, True

    def _groups(self, pieces: Iterable[str]) -> Iterator[list[str]]:
        """Yield the parts in groups of bounded number and size: the tokenizer pads a group to its longest part."""
        group: list[str] = []
        size = 0
        for piece in pieces:
            for part in self._parts(piece):
                if group and (len(group) == _MAX_PARTS or size + len(part) > self._piece_bytes):
                    yield group
                    group, size = [], 0
                group.append(part)
                size += len(part)
        if group:
            yield group

    def _parts(self, text: str) -> Iterator[str]:
        start = 0
        while start < len(text):
            end = start + self._piece_bytes
            if not text[start:end].isascii():
                end = start + self._piece_bytes // _BYTES_PER_CHARACTER
            end = self._cut(text, start, end) if end < len(text) else len(text)
            yield text[start:end]
            start = end

    def _cut(self, text: str, start: int, end: int) -> int:
        """Return where to cut before ``end``: before the last word, otherwise anywhere outside a special text."""
        at = text.rfind(" ", start + 1, end)
        while at > start:
            if text[at - 1].isalpha() and text[at + 1 : at + 2].isalpha():
                return at
            at = text.rfind(" ", start + 1, at)
        return max(self._specials.safe_cut(text, end), start + 1)

    def _encode_parts(self, parts: list[str], *, at_start: bool) -> Iterator[list[int]]:
        """Yield the ids of each part. ``at_start``: whether the first part starts the prompt."""
        anchored = [self._adds_space and not (at_start and index == 0) for index in range(len(parts))]
        texts = [_ANCHOR + part if anchor else part for part, anchor in zip(parts, anchored, strict=True)]
        for part, ids, anchor in zip(parts, self._encode(texts), anchored, strict=True):
            if len(ids) >= self._cap:
                middle = self._specials.safe_cut(part, len(part) // 2)
                yield from self._encode_parts([part[:middle], part[middle:]], at_start=at_start)
            else:
                yield self._without_anchor(part, ids) if anchor else ids
            at_start = False

    def _without_anchor(self, part: str, ids: list[int]) -> list[int]:
        length = len(self._anchor)
        if ids[:length] == self._anchor:
            return ids[length:]
        # The anchor was merged with the text. An extra space is better than a lost token.
        return self._encode([part])[0]
