"""The parser interface, and the parts that a parser splits generated text into."""

from typing import Protocol

import msgspec


class Content(msgspec.Struct, frozen=True):
    """A chunk of the visible response text."""

    text: str


class Reasoning(msgspec.Struct, frozen=True):
    """A chunk of reasoning text."""

    text: str


class CallOpened(msgspec.Struct, frozen=True):
    """Start of a tool call. ``index`` numbers the calls of a choice from 0."""

    index: int
    id: str
    name: str


class CallArguments(msgspec.Struct, frozen=True):
    """A chunk of a call's arguments. All chunks of a call concatenated are JSON text."""

    index: int
    text: str


class CallClosed(msgspec.Struct, frozen=True):
    """End of a tool call: its arguments are complete, valid JSON."""

    index: int


Part = Content | Reasoning | CallOpened | CallArguments | CallClosed


class Parser(Protocol):
    """Incremental parser for the text of one choice. Its methods never raise, whatever the text.

    The concatenated parts do not depend on how the text was split into chunks. A call without a
    :class:`CallClosed` was truncated, or turned out malformed after its name was emitted; text after the error is
    content. If the text ends inside markup, that markup is in no part.
    """

    @property
    def dropped(self) -> bool:
        """Whether the text ended inside markup, which was discarded."""

    def feed(self, text: str) -> list[Part]:
        """Process the next chunk of text; return the parts that are now certain."""

    def finish(self, *, cut: bool = False) -> list[Part]:
        """Signal the end of the text; return the parts held back so far.

        ``cut``: the text was truncated by a limit, so a partial marker at its end is markup, not content.
        """
