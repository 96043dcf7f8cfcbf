"""Adapts a parser script to the :class:`api.parsers.parts.Parser` interface."""

from collections.abc import Callable

from api.parsers.parts import Part
from api.parsers.source import Script, Source
from api.parsers.writer import Writer


class ScriptedParser:
    """A :class:`api.parsers.parts.Parser` that runs a script over the text of one choice."""

    def __init__(self, script: Callable[[Source, Writer], Script[None]]) -> None:
        self._source = Source()
        self._writer = Writer()
        self._script = script(self._source, self._writer)

    def feed(self, text: str) -> list[Part]:
        """Process the next chunk of text; return the parts that are now certain."""
        self._source.feed(text)
        next(self._script, None)
        return self._writer.drain()

    @property
    def dropped(self) -> bool:
        """Whether the text ended inside markup, which was discarded."""
        return self._source.dropped

    def finish(self, *, cut: bool = False) -> list[Part]:
        """Signal the end of the text, and whether it was truncated; return the parts held back so far."""
        self._source.end(cut=cut)
        next(self._script, None)
        if self.dropped:
            self._writer.edge()
        return self._writer.finish()
