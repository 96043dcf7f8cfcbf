"""Incremental detokenisation: complete characters, without special tokens and stop strings."""

import hashlib
from collections.abc import Iterable, Mapping

from worker.engine.stops import StopSearch

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class Utf8Decoder:
    """Decodes UTF-8 that arrives in parts and may be invalid, with the rules of OpenVINO's detokenizers.

    Python's own incremental decoder finds the same characters, but replaces incomplete ones by another number of
    U+FFFD. Invalid are: a byte that can't be in a character's place; a character that is interrupted by another one or
    by the end, as a whole; and each byte of one that is longer than necessary, a surrogate, or beyond U+10FFFF.
    """

    def __init__(self, *, replace: bool) -> None:
        """``replace``: whether U+FFFD takes the place of what is invalid. Otherwise, it is dropped."""
        self._invalid = _REPLACEMENT if replace else ""
        self._character = bytearray()
        self._missing = 0
        """Number of bytes that are missing from the current character."""

    @property
    def inside_character(self) -> bool:
        """Whether the bytes so far end inside a character."""
        return self._missing > 0

    def decode(self, data: bytes) -> str:
        """Append ``data``; return the text that has become certain."""
        text: list[str] = []
        for byte in data:
            if self._missing and byte & 0xC0 == 0x80:
                self._character.append(byte)
                self._missing -= 1
                if not self._missing:
                    text.append(self._complete())
                continue
            text.append(self.finish())
            if byte < 0x80:
                text.append(chr(byte))
            elif 0xC0 <= byte < 0xF8:
                self._character.append(byte)
                self._missing = 1 + (byte >= 0xE0) + (byte >= 0xF0)
            else:
                text.append(self._invalid)
        return "".join(text)

    def finish(self) -> str:
        """Return the text of the current character, which is interrupted; empty if there is none."""
        text = self._invalid if self._missing else ""
        self._character.clear()
        self._missing = 0
        return text

    def _complete(self) -> str:
        data = bytes(self._character)
        self._character.clear()
        try:
            return data.decode()
        except UnicodeDecodeError:
            overlong = data < b"\xc2" or b"\xe0" <= data < b"\xe0\xa0" or b"\xf0" <= data < b"\xf0\x90"
            # Detokenizers keep surrogates and the like as they are; their Python binding replaces them.
            return len(data) * (self._invalid if overlong else _REPLACEMENT)


class Vocabulary:
    """The text or bytes of each token id.

    ``special`` holds the ids of control tokens, which are skipped in text by default. ``strips_first_space``: the
    model's own decoder drops one space at the start of a text, as SentencePiece does. ``replaces_invalid``: it replaces
    invalid UTF-8 by U+FFFD instead of dropping it. ``end_tokens`` end an output in addition to the model's EOS.
    """

    def __init__(
        self,
        pieces: Iterable[bytes],
        special: Iterable[int] = (),
        *,
        strips_first_space: bool = False,
        replaces_invalid: bool = True,
        end_tokens: Iterable[int] = (),
    ) -> None:
        """``pieces[id]`` is the UTF-8 text of a token, or a fragment of a character's UTF-8 bytes."""
        self.special = frozenset(special)
        self.strips_first_space = strips_first_space
        self.replaces_invalid = replaces_invalid
        self.end_tokens = frozenset(end_tokens)
        self._fragments: dict[int, bytes] = {}
        self._texts: dict[int, str] = {}
        self._size = 0
        for token, piece in enumerate(pieces):
            self._size += 1
            try:
                self._texts[token] = piece.decode()
            except UnicodeDecodeError:
                self._fragments[token] = piece
        self._visible_texts = {frozenset[int](): self._texts | dict.fromkeys(self.special, "")}

    def __len__(self) -> int:
        """Number of ids. A model may generate higher ones, which have no text."""
        return self._size

    def texts(self, *, skip_special_tokens: bool, shown: frozenset[int] = frozenset()) -> Mapping[int, str]:
        """Return the texts of all ids that are complete characters.

        With ``skip_special_tokens``, control tokens are empty except those in ``shown``.
        """
        if not skip_special_tokens:
            return self._texts
        # Cached: a table is as long as the vocabulary, and a model has few sets of shown tokens.
        if shown not in self._visible_texts:
            self._visible_texts[shown] = self._texts | dict.fromkeys(self.special - shown, "")
        return self._visible_texts[shown]

    def text(self, token: int) -> str:
        """Return the text of a token; empty for a fragment of a character and for an unknown id."""
        return self._texts.get(token, "")

    def piece(self, token: int) -> bytes:
        """Return the bytes of a token; empty for an unknown id."""
        return self._fragments.get(token) or self.text(token).encode()

    def digest(self, template: str) -> str:
        """Return a digest of all tokens and of a chat template. Tokens mean the same where it is equal."""
        digest = hashlib.sha256(template.encode())
        for token in range(self._size):
            piece = self.piece(token)
            digest.update(b"%d %d " % (len(piece), token in self.special) + piece)
        return digest.hexdigest()[:16]

    def is_fragment(self, token: int) -> bool:
        """Return whether a token is only a part of a character's bytes."""
        return token in self._fragments


class TextStream:
    """The text of one sequence, token by token.

    Invalid UTF-8 is replaced or dropped, as by the model's own decoder. The concatenated results of :meth:`push` and
    :meth:`finish` do not depend on how the text is split into tokens.

    >>> stream = TextStream(Vocabulary([b"a", *(bytes([byte]) for byte in "é".encode())]))
    >>> [stream.push(token) for token in (0, 1, 2)]
    ['a', '', 'é']
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        stops: StopSearch | None = None,
        min_tokens: int = 0,
        skip_special_tokens: bool = True,
        shown: Iterable[int] = (),
        keep_first_space: bool = False,
    ) -> None:
        """No stop string ends in the first ``min_tokens`` tokens. ``shown`` are special tokens that are not skipped.
        ``keep_first_space`` keeps a space that the model's own decoder would drop, because a grammar may require it.
        """
        self._vocabulary = vocabulary
        self._texts = vocabulary.texts(skip_special_tokens=skip_special_tokens, shown=frozenset(shown))
        self._decoder = Utf8Decoder(replace=vocabulary.replaces_invalid)
        self._at_start = vocabulary.strips_first_space and not keep_first_space
        self._stops = stops
        self._unarmed = min_tokens
        self._plain = not (self._at_start or stops)

    def piece(self, token: int) -> bytes:
        """Return the bytes that a token adds to the text; empty for a skipped token."""
        text = self._texts.get(token)
        return self._vocabulary.piece(token) if text is None else text.encode()

    @property
    def stop(self) -> str:
        """The stop string that has matched, if one has. Text after it is ignored."""
        return self._stops.stop if self._stops else ""

    @property
    def unread(self) -> int | None:
        """Number of characters that have begun but are not final text yet; None if that may be a stop string."""
        return None if self._stops and self._stops.holds else int(self._decoder.inside_character)

    def push(self, token: int) -> str:
        """Append a token; return the text that has become final."""
        text = self._texts.get(token)
        # Fast path: nearly every token is complete text, and this is called once per token.
        if text is not None and self._plain:
            return text
        return "" if self.stop else self._push_slow(token, text)

    def finish(self, *, cut: bool = False) -> str:
        """Return the text that was held back: a possible start of a stop string, and an incomplete character.

        Call it when the sequence has ended. ``cut``: a limit has ended it.
        """
        if self.stop:
            return ""
        text = self._decoder.finish()
        return self._stops.finish(text, cut=cut) if self._stops else text

    def _push_slow(self, token: int, text: str | None) -> str:
        if text is None or self._decoder.inside_character or self._at_start:
            data = self._vocabulary.piece(token) if text is None else text.encode()
            if self._at_start and data:
                self._at_start = False
                data = data.removeprefix(b" ")
            text = self._decoder.decode(data)
        self._plain = not (self._decoder.inside_character or self._at_start or self._stops)
        if self._stops is None:
            return text
        self._unarmed -= 1
        return self._stops.push(text, armed=self._unarmed < 0)
