"""Encodes text of any length with a tokenizer that cuts long strings off in silence.

OpenVINO GenAI's tokenizer returns at most ``cap`` tokens a string (8,192 for a GGUF model) and says nothing. So no
string that could reach the cap is given to it: longer ones are cut where its pre-tokeniser cuts anyway, between a
letter and a space before a letter, so that the tokens are those of the whole string.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from worker.prompt.specials import SpecialTexts

RawEncode = Callable[[str], Sequence[int]]
"""A tokenizer's own encoding: special texts become special tokens, no token is added at either end."""

_PROBE = "a " * 40_000
_ANCHOR = "\n"
_BYTES_PER_CHARACTER = 4


class Encoder:
    """Encodes pieces of text of any length."""

    def __init__(self, encode: RawEncode, specials: SpecialTexts) -> None:
        self._encode = encode
        self._specials = specials
        self._cap = len(encode(_PROBE))
        # Byte fallback makes at most one token a byte; the rest is for normalisers that lengthen text a little.
        self._piece_bytes = self._cap - self._cap // 8
        # SentencePiece-like tokenizers put a space before every string, which pieces in the middle must not get.
        self._adds_space = list(encode("a b")) != [*encode("a"), *encode(" b")]

    def encode(self, pieces: Iterable[str], *, most: int) -> tuple[list[int], bool]:
        """Return the token ids of the pieces, encoded apart and joined, and whether that is all of them.

        Stops once there are more than ``most`` ids.
        """
        ids: list[int] = []
        first = True
        for piece in pieces:
            for part in self._parts(piece):
                if len(ids) > most:
                    return ids, False
                ids += self._whole(part, first)
                first = False
        return ids, True

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
        """Return where to cut before ``end``: at the last word's space, else anywhere but in a special text."""
        at = text.rfind(" ", start + 1, end)
        while at > start:
            if text[at - 1].isalpha() and text[at + 1 : at + 2].isalpha():
                return at
            at = text.rfind(" ", start + 1, at)
        return max(self._specials.spans(text, end), start + 1)

    def _whole(self, part: str, first: bool) -> Sequence[int]:
        ids = self._encode(part) if first or not self._adds_space else self._continued(part)
        if len(ids) < self._cap:
            return ids
        middle = self._specials.spans(part, len(part) // 2)
        return [*self._whole(part[:middle], first), *self._whole(part[middle:], False)]

    def _continued(self, part: str) -> Sequence[int]:
        anchor = list(self._encode(_ANCHOR))
        ids = self._encode(_ANCHOR + part)
        return ids[len(anchor) :] if list(ids[: len(anchor)]) == anchor else self._encode(part)
