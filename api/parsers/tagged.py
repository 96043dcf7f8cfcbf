"""Answers of content in which markers announce reasoning and calls: every format but harmony."""

from collections.abc import Callable

from api.parsers.attempt import attempt
from api.parsers.source import Script, Source, markers
from api.parsers.writer import Writer
from shared.protocol.formats import ReasoningFormat

CallReader = Callable[[Source, Writer, str], Script[None]]
"""Reads calls behind a trigger, which has been read already; the trigger is empty before a lead, which has not.

It tells the calls and raises :class:`api.parsers.source.Malformed` on a fault. What is then left in the source
as read and not told is content.
"""


def tagged_script(
    source: Source,
    writer: Writer,
    *,
    reasoning: ReasoningFormat | None = None,
    in_reasoning: bool = False,
    triggers: tuple[str, ...] = (),
    leads: tuple[str, ...] = (),
    read_calls: CallReader | None = None,
) -> Script[None]:
    """Read a whole answer. ``in_reasoning``: the prompt has opened the reasoning already.

    Reasoning is looked for at the beginning and behind calls only: an answer may well speak of ``<think>``.
    """

    def tell(piece: str) -> None:
        writer.content(piece)
        source.forget()

    if reasoning is not None and in_reasoning:
        yield from _read_reasoning(source, writer, reasoning)
    calls = markers(*triggers)
    openings = leads if reasoning is None else (reasoning.begin, *leads)
    at_edge = True
    while True:
        trigger: str | None = None
        if at_edge:
            yield from source.skip_space()
            opening = yield from source.ahead(openings)
            if reasoning is not None and opening == reasoning.begin:
                yield from source.expect(opening)
                yield from _read_reasoning(source, writer, reasoning)
                continue
            if opening is None:
                tell(source.reclaim())
            else:
                trigger = ""
        if trigger is None:
            trigger = yield from source.through(calls, tell)
        if trigger is None or read_calls is None:
            return
        at_edge = yield from attempt(source, writer, read_calls(source, writer, trigger), marked=bool(trigger))


def _read_reasoning(source: Source, writer: Writer, reasoning: ReasoningFormat) -> Script[None]:
    def tell(piece: str) -> None:
        writer.reasoning(piece)
        source.forget()

    writer.edge()
    ending = yield from source.through(markers(reasoning.end), tell)
    source.forget()
    if ending is not None:
        writer.edge()
