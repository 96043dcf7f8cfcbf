"""What a parser makes of a model's text, and what a parser is."""

from typing import Protocol

import msgspec


class Content(msgspec.Struct, frozen=True):
    """A piece of the answer's own text."""

    text: str


class Reasoning(msgspec.Struct, frozen=True):
    """A piece of the text that the model wrote to itself."""

    text: str


class CallOpened(msgspec.Struct, frozen=True):
    """A tool call begins. ``index`` counts the answer's calls from 0."""

    index: int
    id: str
    name: str


class CallArguments(msgspec.Struct, frozen=True):
    """A piece of a call's arguments; all pieces together are JSON text."""

    index: int
    text: str


class CallClosed(msgspec.Struct, frozen=True):
    """The call's arguments are complete, valid JSON."""

    index: int


Part = Content | Reasoning | CallOpened | CallArguments | CallClosed


class Parser(Protocol):
    """Reads one answer's text as it comes. Neither method raises, whatever the text.

    However the text is cut, the parts join to the same whole. A call that is not closed was cut off by the
    end of the text, or became malformed after its name had been told: what follows the fault is content.
    """

    def feed(self, text: str) -> list[Part]:
        """Take the next piece of text; return the parts that are now certain."""

    def finish(self) -> list[Part]:
        """Tell that the text has ended; return what was held back."""
