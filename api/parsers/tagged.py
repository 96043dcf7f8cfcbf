"""Script for output in which markers delimit reasoning and tool calls: every format except harmony."""

from collections.abc import Callable

from api.parsers.parts import Writer, attempt
from api.parsers.source import Script, Source, markers
from shared.protocol.formats import ReasoningFormat

CallReader = Callable[[Source, Writer, str], Script[None]]
"""Reads calls after a trigger, which has been consumed. An empty trigger means a lead comes next, not consumed yet.

It emits the calls and raises :class:`api.parsers.source.Malformed` on invalid input. Text that is then pending in the
source is content.
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
    """Read the whole output. ``in_reasoning``: the prompt ends inside the reasoning block.

    Reasoning is recognised only at the start and after calls, because content may mention ``<think>``.
    """

    def emit(piece: str) -> None:
        writer.content(piece)
        source.commit()

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
                emit(source.reclaim())
            else:
                trigger = ""
        if trigger is None:
            trigger = yield from source.through(calls, emit)
        if trigger is None or read_calls is None:
            return
        at_edge = yield from attempt(source, writer, read_calls(source, writer, trigger), marked=bool(trigger))


def _read_reasoning(source: Source, writer: Writer, reasoning: ReasoningFormat) -> Script[None]:
    def emit(piece: str) -> None:
        writer.reasoning(piece)
        source.commit()

    writer.edge()
    ending = yield from source.through(markers(reasoning.end), emit)
    source.commit()
    if ending is not None:
        writer.edge()
