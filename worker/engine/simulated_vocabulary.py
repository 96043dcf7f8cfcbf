"""The simulated engine's vocabulary: all bytes, some common words, and an end-of-text token.

Any text can be encoded. Characters outside ASCII are split over several tokens, as in real vocabularies.
"""

import re
from functools import cache

from worker.engine.text import Vocabulary

_WORDS = (
    "the a of and to in is it that for as with on by from at this one two three red green blue old new "
    "small large first last water stone tree river house road light wind fire song day night morning "
    "evening winter summer bird horse fish bread apple door window book letter music silence bright "
    "quiet slow quick warm cold walks sings turns falls rises opens closes finds keeps gives takes"
)
WORDS = tuple(" " + word for word in _WORDS.split())
FIRST_WORD = 256
"""Ids below are bytes."""

END = FIRST_WORD + len(WORDS)
"""Id of the end-of-text token. No text encodes to it."""

_WORD_IDS = {word: FIRST_WORD + index for index, word in enumerate(WORDS)}
_PARTS = re.compile(r" ?\w+|\W", re.DOTALL)


def encode(text: str) -> tuple[int, ...]:
    """Return the token ids of ``text``, from which :class:`~worker.engine.text.TextStream` restores it.

    Raises :class:`UnicodeEncodeError` for lone surrogates.
    """
    ids: list[int] = []
    for part in _PARTS.findall(text):
        word = _WORD_IDS.get(part)
        if word is None:
            ids.extend(part.encode())
        else:
            ids.append(word)
    return tuple(ids)


def decode(tokens: tuple[int, ...]) -> str:
    """Return the text of ``tokens`` without the end-of-text token."""
    pieces = vocabulary()
    return b"".join(pieces.piece(token) for token in tokens if token != END).decode(errors="replace")


@cache
def vocabulary(rotation: int = 0) -> Vocabulary:
    """Return the vocabulary (cached). ``rotation`` gives the words other ids."""
    pieces = [bytes([byte]) for byte in range(FIRST_WORD)]
    first = rotation % len(WORDS)
    pieces += [word.encode() for word in WORDS[first:] + WORDS[:first]]
    pieces.append(b"<|end|>")
    return Vocabulary(pieces, {END})
