"""Prevents special-token injection: text from clients never becomes special tokens.

A tokenizer encodes ``<|im_end|>`` as a special token anywhere, so a client who sends it could end its turn and open
another one in a different role. Before rendering, a random mark is inserted after the first character of each special
text in client text. After rendering, the prompt is cut at the marks and its pieces are encoded separately. The text is
unchanged, but its tokens are ordinary ones.

Images are marked, too: where one stands in a message, there is a mark with its number. Another mark is at the end of a
message that the output continues.
"""

import json
import re
import secrets
from collections.abc import Iterable

_PRIVATE_USE = range(0xE000, 0xF900)
_MARK_LENGTH = 12

Piece = str | int
"""A part of a rendered prompt: text to be encoded separately, or the number of an image."""


class SpecialTexts:
    """The special texts of a vocabulary, and the mark that splits them. Single characters can't be split."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = sorted({text for text in texts if len(text) > 1}, key=len, reverse=True)
        # 150 random bits that never leave this process, so that no client can send a mark.
        self._mark, self._image_mark, self.end = _random_mark(), _random_mark(), _random_mark()
        self._marks = (self._mark, self._image_mark, self.end)
        self._cut = re.compile(f"{_either(self._mark)}|{_either(self._image_mark)}([0-9]+);")
        either = "|".join(map(re.escape, self._texts)) or "(?!)"
        self._special = re.compile(either)
        self._start = re.compile(f"(?=(?:{either}))(.)", re.DOTALL)
        self._longest = max(map(len, self._texts), default=0)
        self._heads = {text[:end] for text in self._texts for end in range(1, len(text))}
        self._tails = {text[start:] for text in self._texts for start in range(1, len(text))}
        self._insides = "\0".join(self._texts)

    def image(self, number: int) -> str:
        return f"{self._image_mark}{number};"

    def escape(self, text: str) -> str:
        """Return client text with a mark inside each special text."""
        while any(mark in text for mark in self._marks):
            for mark in self._marks:
                text = text.replace(mark, "")
        return self._start.sub(rf"\1{self._mark}", text) if self._special.search(text) else text

    def escape_joining(self, text: str) -> str:
        """Like :meth:`escape`, and mark the ends of a text that could form a special text with adjacent text."""
        text = self.escape(text)
        core = text.strip()
        if not self._joins(core):
            return text
        start = text.index(core)
        return f"{text[:start]}{self._mark}{core}{self._mark}{text[start + len(core) :]}"

    def may_join(self, texts: Iterable[str]) -> bool:
        """Return whether one of the client texts could be part of a special text that extends beyond it."""
        return any(self._joins(text.strip()) for text in texts)

    def _joins(self, core: str) -> bool:
        if not core:
            return False
        longest = min(self._longest - 1, len(core))
        if any(core[-size:] in self._heads or core[:size] in self._tails for size in range(1, longest + 1)):
            return True
        return "\0" not in core and core in self._insides

    def pieces(self, rendered: str) -> list[Piece]:
        """Return the rendered prompt, split at the marks, with the images in their places."""
        pieces: list[Piece] = []
        # Texts alternate with image numbers, which are None for other marks.
        for index, piece in enumerate(self._cut.split(rendered)):
            if piece:
                pieces.append(int(piece) if index % 2 else piece)
        return pieces

    def count(self, pieces: Iterable[Piece]) -> int:
        """Return the number of special texts in the pieces; each becomes a special token."""
        return sum(sum(1 for _ in self._special.finditer(piece)) for piece in pieces if isinstance(piece, str))

    def safe_cut(self, text: str, position: int) -> int:
        """Return ``position``, or the start of the special text that a cut of ``text`` there would split."""
        start = max(0, position - self._longest)
        for found in self._special.finditer(text, start, position + self._longest):
            if found.start() < position < found.end():
                return found.start()
        return position

    def unescape(self, text: str) -> str:
        """Return text without marks, for error messages."""
        return self._cut.sub("", text).replace(self.end, "")


def _random_mark() -> str:
    return "".join(chr(secrets.choice(_PRIVATE_USE)) for _ in range(_MARK_LENGTH))


def _either(mark: str) -> str:
    """Return a regular expression for a mark, as it is and as a template may write it in JSON."""
    return f"(?:{mark}|{re.escape(json.dumps(mark)[1:-1])})"
