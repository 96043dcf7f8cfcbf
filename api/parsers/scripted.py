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

    @property
    def dropped(self) -> bool:
        """Whether the text ended inside markup, which is in no part."""
        return self._source.dropped

    def finish(self, *, cut: bool = False) -> list[Part]:
        """Tell that the text has ended, and whether it was cut off; return what was held back."""
        self._source.end(cut=cut)
        next(self._script, None)
        if self.dropped:
            self._writer.edge()
        return self._writer.finish()
