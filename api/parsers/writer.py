"""Collects the parts of an answer while a script reads it."""

import secrets

from api.parsers.parts import CallArguments, CallClosed, CallOpened, Content, Part, Reasoning
from api.parsers.source import WHITESPACE

_Prose = type[Content] | type[Reasoning]

BLANK_LINE = "\n\n"


class Writer:
    """Makes parts, numbers the calls, and tidies the white space around blocks.

    White space between content and reasoning or a call is part of the format: the chat template writes it
    again when it renders the history. It is dropped, and blocks of one kind that something else separated
    are joined by a blank line. So white space is held back until it is known what follows.
    """

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self.calls = 0
        """How many calls have been opened."""
        self._space: list[str] = []
        self._kind: _Prose = Content
        self._spoken: set[_Prose] = set()
        self._at_edge = False

    def content(self, text: str) -> None:
        """Add to the answer's text."""
        self._say(Content, text)

    def reasoning(self, text: str) -> None:
        """Add to the reasoning."""
        self._say(Reasoning, text)

    def edge(self) -> None:
        """A block ends or begins here: white space before and after it is dropped."""
        self._space.clear()
        self._at_edge = True

    def open(self, name: str) -> None:
        """Begin a call of ``name`` under a new id."""
        self.edge()
        self._parts.append(CallOpened(self.calls, f"call_{secrets.token_hex(12)}", name))
        self.calls += 1

    def arguments(self, text: str) -> None:
        """Add JSON text to the arguments of the call that was opened last."""
        if text:
            self._parts.append(CallArguments(self.calls - 1, text))

    def close(self) -> None:
        """End the call that was opened last: its arguments are complete."""
        self._parts.append(CallClosed(self.calls - 1))

    def drain(self) -> list[Part]:
        """Return the parts since the last time."""
        parts = self._parts
        self._parts = []
        return parts

    def finish(self) -> list[Part]:
        """Return the last parts, with white space that turned out to belong to the text."""
        if self._space:
            self._parts.append(self._kind("".join(self._space)))
            self._space.clear()
        return self.drain()

    def _say(self, kind: _Prose, text: str) -> None:
        if self._at_edge:
            text = text.lstrip(WHITESPACE)
            if not text:
                return
            self._at_edge = False
            if kind in self._spoken:
                self._space.append(BLANK_LINE)
        self._kind = kind
        body = text.rstrip(WHITESPACE)
        if body:
            self._spoken.add(kind)
            self._parts.append(kind("".join(self._space) + body))
            self._space.clear()
        if len(body) < len(text):
            self._space.append(text[len(body) :])
