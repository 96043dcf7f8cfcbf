"""The text of an answer, seen by a parser script that runs ahead until it needs more of it.

A parser is written as a generator (a script) that reads the text in order and is suspended where the text
stops for now. So the state between two pieces is the place in the script, nothing is parsed twice, and it
makes no difference where the text was cut.
"""

import re
import sys
from collections.abc import Callable, Generator
from functools import cache
from typing import TypeVar

from api.parsers.scanner import Scanner

WHITESPACE = " \t\r\n"
NAME_LIMIT = 256
"""Longest name of a tool or a parameter, in characters: text without an end must not be held back for ever."""

_NEVER = r"(?!)"
_space = re.compile(r"[ \t\r\n]*")

_Result = TypeVar("_Result")
Script = Generator[None, None, _Result]
"""A script yields when it needs more text, and returns its result."""


class Malformed(Exception):
    """The text is not what the format has at this place, or it ends here."""


class Markers:
    """Texts to look for at once. None may begin with another one."""

    def __init__(self, texts: tuple[str, ...]) -> None:
        self._texts = texts
        self._pattern = re.compile("|".join(re.escape(text) for text in texts) or _NEVER)
        self._firsts = frozenset(text[0] for text in texts)
        self.longest = max((len(text) for text in texts), default=0)

    def find(self, text: str, start: int, end: int = sys.maxsize) -> tuple[int, int] | None:
        """Where the first marker in ``text[start:end]`` begins and ends."""
        found = self._pattern.search(text, start, end)
        return found.span() if found else None

    def clear_until(self, text: str, start: int) -> int:
        """How far ``text``, which holds no marker from ``start`` on, can't be part of one whatever follows."""
        for index in range(max(start, len(text) - self.longest + 1), len(text)):
            if text[index] in self._firsts:
                tail = text[index:]
                if any(marker.startswith(tail) for marker in self._texts):
                    return index
        return len(text)


@cache
def markers(*texts: str) -> Markers:
    """The :class:`Markers` for ``texts``, made once: formats are few."""
    return Markers(texts)


class Source:
    """The text that has come and not been read, and what has been read and not told as a part.

    The latter becomes content again when a call turns out to be malformed (:meth:`reclaim`).
    """

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self._ended = False
        self.cut = False
        """Whether the text has ended because it was cut off."""
        self.dropped = False
        """Whether the text ended inside markup, which is not content."""
        self._untold: list[str] = []

    @property
    def exhausted(self) -> bool:
        """Whether the text has ended and all of it has been read."""
        return self._ended and self.at == len(self.text)

    def feed(self, text: str) -> None:
        """Append ``text``."""
        self.text = self.text[self.at :] + text
        self.at = 0

    def end(self, *, cut: bool = False) -> None:
        """No more text will come. ``cut``: the text was cut off, so its end may be half a marker."""
        self._ended = True
        self.cut = cut

    def take(self, end: int) -> str:
        """Read up to index ``end`` of ``text``, and return what was read."""
        piece = self.text[self.at : end]
        self._untold.append(piece)
        self.at = end
        return piece

    def forget(self) -> None:
        """All that has been read has been told, or need not be."""
        self._untold.clear()

    def drop(self) -> None:
        """Forget what has been read and not told: the text has ended inside markup."""
        self._untold.clear()
        self.dropped = True

    def reclaim(self) -> str:
        """Return what has been read and not told, and forget it."""
        text = "".join(self._untold)
        self._untold.clear()
        return text

    def more(self) -> Script[bool]:
        """Wait for more text; false when there is none."""
        if not self._ended:
            yield
        return not self._ended

    def peek(self) -> Script[str]:
        """The next character, not read yet; empty at the end."""
        while self.at == len(self.text):
            if not (yield from self.more()):
                return ""
        return self.text[self.at]

    def skip_space(self) -> Script[str]:
        """Read white space; return the character behind it, not read yet, or nothing at the end."""
        while True:
            found = _space.match(self.text, self.at)
            if found is not None and found.end() > self.at:
                self.take(found.end())
            if self.at < len(self.text):
                return self.text[self.at]
            if not (yield from self.more()):
                return ""

    def ahead(self, options: tuple[str, ...]) -> Script[str | None]:
        """Which of ``options`` comes next, not read yet.

        The beginning of one at the end of the text is read; where the text was cut off, it is dropped.
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
        """Read whichever of ``options`` comes next, and return it."""
        option = yield from self.ahead(options)
        if option is not None:
            self.take(self.at + len(option))
        return option

    def expect(self, text: str) -> Script[None]:
        """Read ``text``. Raises :class:`Malformed` when something else comes."""
        if (yield from self.match(text)) is None:
            raise Malformed

    def through(self, stops: Markers, tell: Callable[[str], None], *, tell_cut_stop: bool = True) -> Script[str | None]:
        """Read up to and with the first of ``stops``, handing what comes before it to ``tell`` piece by piece.

        Returns the stop, or ``None`` when the text ended before one; ``tell_cut_stop`` is whether to tell what
        may have been the beginning of a stop then. Where the text was cut off, that is dropped.
        """
        while True:
            found = stops.find(self.text, self.at)
            if found is not None:
                start, end = found
                if start > self.at:
                    tell(self.take(start))
                return self.take(end)
            clear = stops.clear_until(self.text, self.at)
            if clear > self.at:
                tell(self.take(clear))
            if not (yield from self.more()):
                rest = self.take(len(self.text))
                if rest and self.cut:
                    self.drop()
                elif rest and tell_cut_stop:
                    tell(rest)
                return None

    def until(self, stops: Markers, limit: int) -> Script[tuple[str, str]]:
        """Read up to and with the first of ``stops``; return what came before it, and the stop.

        Raises :class:`Malformed` when there are more than ``limit`` characters before it, or the text ends.
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
        """Read as much as matches ``characters``, a pattern that any part of a match matches too.

        Raises :class:`Malformed` when that is more than ``limit`` characters.
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


def read_value(scanner: Scanner, source: Source, tell: Callable[[str], None]) -> Script[None]:
    """Read one value and hand it to ``tell`` piece by piece.

    Raises :class:`Malformed` where ``scanner`` fails or the text ends; the sound beginning has been told by then.
    """
    while True:
        end, piece = scanner.scan(source.text, source.at)
        source.take(end)
        tell(piece)
        if scanner.done:
            return
        if scanner.failed or not (yield from source.more()):
            raise Malformed
