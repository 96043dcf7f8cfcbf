"""Input buffer of the parsers, and the primitives that parser scripts are written with.

A parser is a generator (a script) that reads the text in order and yields when it needs more. The position in the
script is the whole state between two chunks: nothing is parsed twice, and chunk boundaries do not affect the result.
"""

import re
import sys
from collections.abc import Callable, Generator
from functools import cache
from typing import TypeVar

WHITESPACE = " \t\r\n"
NAME_LIMIT = 256
"""Maximum length of a tool or parameter name in characters. Bounds how much text is held back."""

_NEVER = r"(?!)"
_space = re.compile(r"[ \t\r\n]*")

_Result = TypeVar("_Result")
Script = Generator[None, None, _Result]
"""A parser routine that yields when it needs more text, and returns its result."""


class Malformed(Exception):
    """The text does not match the format at this position, or ends too early."""


class Markers:
    """A set of strings to search for in one pass. None may be a prefix of another."""

    def __init__(self, texts: tuple[str, ...]) -> None:
        self._texts = texts
        self._pattern = re.compile("|".join(re.escape(text) for text in texts) or _NEVER)
        self._firsts = frozenset(text[0] for text in texts)
        self.longest = max((len(text) for text in texts), default=0)

    def find(self, text: str, start: int, end: int = sys.maxsize) -> tuple[int, int] | None:
        """Return the span of the first marker in ``text[start:end]``, or ``None``."""
        found = self._pattern.search(text, start, end)
        return found.span() if found else None

    def clear_until(self, text: str, start: int) -> int:
        """Return the index up to which ``text`` can't be part of a marker, whatever follows.

        ``text`` must not contain a whole marker from ``start`` on.
        """
        for index in range(max(start, len(text) - self.longest + 1), len(text)):
            if text[index] in self._firsts:
                tail = text[index:]
                if any(marker.startswith(tail) for marker in self._texts):
                    return index
        return len(text)


@cache
def markers(*texts: str) -> Markers:
    """Return the :class:`Markers` for ``texts``, cached for the life of the process."""
    return Markers(texts)


class Source:
    """Buffer of received text, with a read position and the text consumed since the last commit.

    Consumed text is pending until it has been emitted as a part (:meth:`commit`) or discarded as markup
    (:meth:`drop`). If a call turns out to be malformed, :meth:`reclaim` returns the pending text, which is content.
    Positions count characters of the whole text.
    """

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self._start = 0
        """Position of ``text``."""
        self.settled = 0
        """Position of the first character that is pending or not consumed."""
        self._ended = False
        self.cut = False
        """Whether the text was truncated."""
        self.dropped = False
        """Whether the text ended inside markup, which was discarded."""
        self.last_dropped = ""
        self.incomplete = False
        """Whether the text ended inside a call."""
        self._pending: list[str] = []
        self.recorded: list[str] | None = None
        """Text that was consumed since a reader has set this to a list."""

    @property
    def position(self) -> int:
        """Position of the first character that is not consumed."""
        return self._start + self.at

    @property
    def exhausted(self) -> bool:
        """Whether the text has ended and all of it has been consumed."""
        return self._ended and self.at == len(self.text)

    def feed(self, text: str) -> None:
        """Append ``text``."""
        self._start += self.at
        self.text = self.text[self.at :] + text
        self.at = 0

    def end(self, *, cut: bool = False) -> None:
        """Mark the end of the text. ``cut``: the text was truncated, so it may end with a partial marker."""
        self._ended = True
        self.cut = cut

    def take(self, end: int) -> str:
        """Consume ``text`` up to index ``end``, and return the consumed part."""
        piece = self.text[self.at : end]
        self._pending.append(piece)
        if self.recorded is not None:
            self.recorded.append(piece)
        self.at = end
        return piece

    def commit(self) -> None:
        """Clear the pending text: it has been emitted, or is markup."""
        self._pending.clear()
        self.settled = self.position

    def committing(self, emit: Callable[[str], None]) -> Callable[[str], None]:
        """Return a function that passes text to ``emit`` and commits what was read."""

        def emit_and_commit(piece: str) -> None:
            emit(piece)
            self.commit()

        return emit_and_commit

    def drop(self) -> None:
        """Discard the pending text: the text ended inside markup."""
        self.last_dropped = "".join(self._pending)
        self.commit()
        self.dropped = True

    def reclaim(self) -> str:
        """Return the pending text and clear it."""
        text = "".join(self._pending)
        self.commit()
        return text

    def more(self) -> Script[bool]:
        """Wait for more text; return False at the end of the text."""
        if not self._ended:
            yield
        return not self._ended

    def peek(self) -> Script[str]:
        """Return the next character without consuming it; empty at the end."""
        while self.at == len(self.text):
            if not (yield from self.more()):
                return ""
        return self.text[self.at]

    def skip_space(self) -> Script[str]:
        """Consume whitespace; return the next character without consuming it, or an empty string at the end."""
        while True:
            found = _space.match(self.text, self.at)
            if found is not None and found.end() > self.at:
                self.take(found.end())
            if self.at < len(self.text):
                return self.text[self.at]
            if not (yield from self.more()):
                return ""

    def ahead(self, options: tuple[str, ...]) -> Script[str | None]:
        """Return which of ``options`` comes next, without consuming it.

        If the text ends with the beginning of an option, that beginning is consumed; in a truncated text it is dropped.
        """
        while True:
            for option in options:
                if self.text.startswith(option, self.at):
                    return option
            rest = len(self.text) - self.at
            if not any(rest < len(option) and self.text.endswith(option[:rest]) for option in options):
                return None
            if not (yield from self.more()):
                self.take(len(self.text))
                if rest and self.cut:
                    self.drop()
                return None

    def match(self, *options: str) -> Script[str | None]:
        """Consume whichever of ``options`` comes next, and return it."""
        option = yield from self.ahead(options)
        if option is not None:
            self.take(self.at + len(option))
        return option

    def expect(self, text: str) -> Script[None]:
        """Consume ``text``. Raises :class:`Malformed` if something else comes next."""
        if (yield from self.match(text)) is None:
            raise Malformed

    def through(self, stops: Markers, emit: Callable[[str], None], *, emit_cut_stop: bool = True) -> Script[str | None]:
        """Consume text through the first of ``stops``, passing the text before it to ``emit`` in chunks.

        Returns the stop, or ``None`` if the text ended first. A partial stop at the end is emitted if
        ``emit_cut_stop`` is set; in a truncated text it is always dropped.
        """
        while True:
            found = stops.find(self.text, self.at)
            if found is not None:
                start, end = found
                if start > self.at:
                    emit(self.take(start))
                return self.take(end)
            clear = stops.clear_until(self.text, self.at)
            if clear > self.at:
                emit(self.take(clear))
            if not (yield from self.more()):
                rest = self.take(len(self.text))
                if rest and self.cut:
                    self.drop()
                elif rest and emit_cut_stop:
                    emit(rest)
                return None

    def until(self, stops: Markers, limit: int) -> Script[tuple[str, str]]:
        """Consume text through the first of ``stops``; return the text before it, and the stop.

        Raises :class:`Malformed` if there are more than ``limit`` characters before it, or the text ends first.
        """
        pieces: list[str] = []
        room = limit
        while True:
            found = stops.find(self.text, self.at, self.at + room + stops.longest)
            end = found[0] if found else stops.clear_until(self.text, self.at)
            if end - self.at > room:
                self.take(self.at + room)
                raise Malformed
            room -= end - self.at
            pieces.append(self.take(end))
            if found is not None:
                return "".join(pieces), self.take(found[1])
            if not (yield from self.more()):
                self.take(len(self.text))
                raise Malformed

    def run(self, characters: re.Pattern[str], limit: int) -> Script[str]:
        """Consume and return the longest run of ``characters``, a pattern that matches every part of a match too.

        Raises :class:`Malformed` if the run is longer than ``limit`` characters.
        """
        pieces: list[str] = []
        room = limit
        while True:
            found = characters.match(self.text, self.at, self.at + room + 1)
            end = found.end() if found else self.at
            if end - self.at > room:
                self.take(self.at + room)
                raise Malformed
            room -= end - self.at
            pieces.append(self.take(end))
            if self.at < len(self.text) or not (yield from self.more()):
                return "".join(pieces)
