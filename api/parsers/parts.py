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

    However the text is divided, the parts join to the same whole. A call that is not closed was cut off by the
    end of the text, or became malformed after its name had been told: what follows the fault is content. Markup inside
    which the text ends is in no part.
    """

    @property
    def dropped(self) -> bool:
        """Whether the text ended inside markup, which is in no part."""

    def feed(self, text: str) -> list[Part]:
        """Take the next piece of text; return the parts that are now certain."""

    def finish(self, *, cut: bool = False) -> list[Part]:
        """Tell that the text has ended; return what was held back.

        ``cut``: the text was cut off by a limit, so the beginning of a marker at its end is markup, not content.
        """
