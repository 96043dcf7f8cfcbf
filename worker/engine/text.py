"""From token ids to text that may be shown: whole characters only, special tokens and stop strings kept out."""

import codecs
from collections.abc import Iterable, Mapping

_INCREMENTAL_UTF8 = codecs.getincrementaldecoder("utf-8")


class Vocabulary:
    """What each token id of a model stands for.

    ``special`` holds the ids of control tokens, which text leaves out by default.
    ``strips_first_space`` says that the model's own decoder drops one space at the start of a text,
    as SentencePiece does.
    """

    def __init__(
        self, pieces: Iterable[bytes], special: Iterable[int] = (), *, strips_first_space: bool = False
    ) -> None:
        """``pieces[id]`` is the UTF-8 text of a token, or a fragment of a character's UTF-8 bytes."""
        self.special = frozenset(special)
        self.strips_first_space = strips_first_space
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
        """The number of ids; a model may make higher ones, which stand for nothing."""
        return self._size

    def texts(self, *, skip_special_tokens: bool, shown: frozenset[int] = frozenset()) -> Mapping[int, str]:
        """The texts of all ids that are text by themselves.

        With ``skip_special_tokens`` control tokens have none, except those in ``shown``.
        """
        if not skip_special_tokens:
            return self._texts
        # A model has few sets of markers, and the table of one is as long as the vocabulary.
        if shown not in self._visible_texts:
            self._visible_texts[shown] = self._texts | dict.fromkeys(self.special - shown, "")
        return self._visible_texts[shown]

    def text(self, token: int) -> str:
        """The text of a token by itself; empty for a fragment of a character and for an unknown id."""
        return self._texts.get(token, "")

    def piece(self, token: int) -> bytes:
        """The bytes of a token; none for an unknown id."""
        return self._fragments.get(token) or self.text(token).encode()

    def is_fragment(self, token: int) -> bool:
        """Whether a token is no text by itself, but part of a character's bytes."""
        return token in self._fragments


class _StopString:
    """Looks for one stop string in text that comes in parts."""

    def __init__(self, stop: str) -> None:
        self._stop = stop
        self.begun = ""
        """The longest end of the text so far that the stop string starts with: a match can start nowhere before it."""

    def find(self, text: str) -> int | None:
        """Read the next part; return the index in it behind the stop string's end, or None.

        Linear in the text: a place where the stop string may start is given up at most once.
        """
        stop = self._stop
        if not self.begun and stop[0] not in text:
            return None
        window = self.begun + text
        found = window.find(stop)
        if found >= 0:
            return found + len(stop) - len(self.begun)
        start = window.find(stop[0], max(0, len(window) - len(stop) + 1))
        while start >= 0 and not stop.startswith(window[start:]):
            start = window.find(stop[0], start + 1)
        self.begun = window[start:] if start >= 0 else ""
        return None

    def __len__(self) -> int:
        return len(self._stop)


class TextStream:
    """The text of one sequence, token by token.

    Bytes that are no UTF-8 are dropped, as OpenVINO's own tokenizer drops them when it decodes.
    The concatenation of what :meth:`push` and :meth:`finish` return does not depend on how the text is cut
    into tokens. Where several stop strings match, the one that ends first counts; of those that end
    together, the longest.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        stop: tuple[str, ...] = (),
        include_stop: bool = False,
        skip_special_tokens: bool = True,
        shown: Iterable[int] = (),
        whole: bool = False,
    ) -> None:
        """Empty stop strings are ignored: they would match everywhere. ``shown`` are special tokens not to skip.
        ``whole`` keeps a first space that the model's own decoder drops: a grammar that asks for it means it."""
        self._vocabulary = vocabulary
        self._texts = vocabulary.texts(skip_special_tokens=skip_special_tokens, shown=frozenset(shown))
        self._decoder = _INCREMENTAL_UTF8("ignore")
        self._inside_character = False
        self._at_start = vocabulary.strips_first_space and not whole
        self._stops = [_StopString(text) for text in stop if text]
        self._include_stop = include_stop
        self._held = ""
        self.stopped = False
        """Whether a stop string has matched; what comes after it is no part of the text."""
        self._plain = not (self._at_start or self._stops)

    def piece(self, token: int) -> bytes:
        """The bytes that a token adds to the text; none for one that is left out."""
        text = self._texts.get(token)
        return self._vocabulary.piece(token) if text is None else text.encode()

    def push(self, token: int) -> str:
        """Take the next token; return the text that may be shown now."""
        text = self._texts.get(token)
        # Nearly every token is text by itself, and this runs for each one of every sequence.
        if text is not None and self._plain:
            return text
        return "" if self.stopped else self._push_with_care(token, text)

    def finish(self) -> str:
        """Return what was held back: the sequence has ended, so no stop string can be completed any more.

        An incomplete character at the end is dropped.
        """
        text, self._held = self._held, ""
        return text

    def _push_with_care(self, token: int, text: str | None) -> str:
        if text is None or self._inside_character:
            text = self._decoder.decode(self._vocabulary.piece(token) if text is None else text.encode())
            self._inside_character = bool(self._decoder.getstate()[0])
        if self._at_start and text:
            self._at_start = False
            text = text.removeprefix(" ")
        self._plain = not (self._inside_character or self._at_start or self._stops)
        return self._search(text) if self._stops else text

    def _search(self, text: str) -> str:
        ends = [(end, -len(stop)) for stop in self._stops if (end := stop.find(text)) is not None]
        shown = self._held + text
        if ends:
            end, negative_length = min(ends)
            end += len(self._held)
            self.stopped = True
            self._held = ""
            return shown[: end if self._include_stop else end + negative_length]
        held = max((len(stop.begun) for stop in self._stops), default=0)
        self._held = shown[len(shown) - held :]
        return shown[: len(shown) - held]
