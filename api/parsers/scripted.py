"""Runs a parser script over text that comes in pieces."""

from collections.abc import Callable

from api.parsers.parts import Part
from api.parsers.source import Script, Source
from api.parsers.writer import Writer


class ScriptedParser:
    """A :class:`api.parsers.parts.Parser` made of a script that reads one whole answer."""

    def __init__(self, script: Callable[[Source, Writer], Script[None]]) -> None:
        self._source = Source()
        self._writer = Writer()
        self._script = script(self._source, self._writer)

    def feed(self, text: str) -> list[Part]:
        """Take the next piece of text; return the parts that are now certain."""
        self._source.feed(text)
        next(self._script, None)
        return self._writer.drain()

    def finish(self) -> list[Part]:
        """Tell that the text has ended; return what was held back."""
        self._source.end()
        next(self._script, None)
        return self._writer.finish()
