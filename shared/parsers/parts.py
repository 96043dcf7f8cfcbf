"""The parts that parsers split generated text into, and the writer that parser scripts output them with."""

import secrets

import msgspec

from shared.parsers.source import WHITESPACE, Malformed, Script, Source


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

_Prose = type[Content] | type[Reasoning]

BLANK_LINE = "\n\n"

Span = tuple[int, str]
"""A piece of content in the text: the position of its end, and the piece."""


class Writer:
    """Builds parts, numbers the calls, and normalises the whitespace between blocks.

    Whitespace between content and reasoning or a call belongs to the format: the chat template adds it when it
    renders the history. It is dropped here, and separate blocks of one kind are joined by a blank line. So
    whitespace is held back until the next text is known.
    """

    def __init__(self, source: Source) -> None:
        """``source`` is what the script reads; what it appends here ends at the position of ``source``."""
        self._source = source
        self._parts: list[Part] = []
        self.spans: list[Span] = []
        """The pieces of content among the parts that :meth:`drain` returned last."""
        self._new_spans: list[Span] = []
        self.calls = 0
        """Number of calls opened so far."""
        self._space: list[str] = []
        self._space_end = 0
        self._kind: _Prose = Content
        self._spoken: set[_Prose] = set()
        self._at_edge = False
        self.in_reasoning = False
        """Whether the last text is reasoning, and its block has not ended."""

    @property
    def silent(self) -> bool:
        """Whether there is neither content nor a call so far."""
        return not self.calls and Content not in self._spoken

    def content(self, text: str) -> None:
        """Append content."""
        self._emit(Content, text)

    def reasoning(self, text: str) -> None:
        """Append reasoning."""
        self.in_reasoning = True
        self._emit(Reasoning, text)

    def edge(self) -> None:
        """Mark a block boundary: whitespace before and after it is dropped."""
        self._space.clear()
        self._at_edge, self.in_reasoning = True, False

    def open(self, name: str) -> None:
        """Start a call of ``name`` with a new id."""
        self.edge()
        self._parts.append(CallOpened(self.calls, f"call_{secrets.token_hex(12)}", name))
        self.calls += 1

    def arguments(self, text: str) -> None:
        """Append JSON text to the arguments of the current call."""
        if text:
            self._parts.append(CallArguments(self.calls - 1, text))

    def close(self) -> None:
        """End the current call, whose arguments are complete."""
        self._parts.append(CallClosed(self.calls - 1))

    def call(self, name: str, arguments: str) -> None:
        """Append a whole call."""
        self.open(name)
        self.arguments(arguments)
        self.close()

    def drain(self) -> list[Part]:
        """Return the parts collected since the last call."""
        parts, self.spans = self._parts, self._new_spans
        self._parts, self._new_spans = [], []
        return parts

    @property
    def settled(self) -> int:
        """Position up to which it is known whether the text is content."""
        return self._space_end - sum(map(len, self._space)) if self._space else self._source.settled

    def finish(self) -> list[Part]:
        """Return the last parts, including held-back whitespace that belongs to the text."""
        if self._space:
            self._append(self._kind, "", self._space_end)
        return self.drain()

    def _emit(self, kind: _Prose, text: str) -> None:
        joint = ""
        if self._at_edge:
            text = text.lstrip(WHITESPACE)
            if not text:
                return
            self._at_edge = False
            joint = BLANK_LINE if kind in self._spoken else ""
        self._kind = kind
        body = text.rstrip(WHITESPACE)
        end = self._source.position
        if body:
            self._spoken.add(kind)
            self._append(kind, body, end - len(text) + len(body), joint)
        if len(body) < len(text):
            self._space.append(text[len(body) :])
            self._space_end = end

    def _append(self, kind: _Prose, text: str, end: int, joint: str = "") -> None:
        """Append ``text``, which ends at the position ``end``, after the whitespace that was held back."""
        text = "".join((*self._space, text))
        self._space.clear()
        self._parts.append(kind(joint + text))
        if kind is Content:
            self._new_spans.append((end, text))


def attempt(
    source: Source, writer: Writer, calls: Script[None], *, marked: bool = True, in_reasoning: bool = False
) -> Script[bool]:
    """Run the script ``calls``; return whether it found calls and nothing else.

    Text that it consumed but did not emit becomes content, or reasoning if ``in_reasoning`` is set. The exception is
    text that ends inside a call: that is markup, which is dropped. ``marked``: a marker introduced the calls. Without a
    marker, and before a call has been opened, unfinished text counts as a call only if the text was truncated.
    """
    opened = writer.calls
    try:
        yield from calls
        sound = True
    except Malformed:
        sound = False
    if source.exhausted and (marked or source.cut or writer.calls > opened):
        source.incomplete = not sound
        source.drop()
    left = source.reclaim()
    (writer.reasoning if in_reasoning else writer.content)(left)
    return sound and not left.strip()
