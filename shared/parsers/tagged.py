"""Script for output in which markers delimit reasoning and tool calls: every format except harmony."""

from collections.abc import Callable

from shared.parsers.format import ReasoningFormat
from shared.parsers.parts import Writer, attempt
from shared.parsers.source import Script, Source, markers

Calls = Callable[[Source, Writer, str], Script[None]]
"""A :data:`~shared.parsers.format.CallReader` with its format and the tools."""


def tagged_script(
    source: Source,
    writer: Writer,
    *,
    reasoning: ReasoningFormat | None = None,
    in_reasoning: bool = False,
    in_content: bool = False,
    triggers: tuple[str, ...] = (),
    leads: tuple[str, ...] = (),
    read_calls: Calls | None = None,
    calls_in_reasoning: bool = False,
) -> Script[None]:
    """Read the whole output. ``in_reasoning``: the prompt ends inside the reasoning block; ``in_content``: in content.

    Reasoning is recognised only at the start and after calls, because content may mention ``<think>``. With
    ``calls_in_reasoning``, calls inside it are calls.
    """

    emit = source.committing(writer.content)
    wrappers = {begin: end for begin, end in reasoning.wrappers if begin} if reasoning else {}
    begin = reasoning.begin.rstrip() if reasoning else ""
    # What is dropped wherever it is in content
    closings = tuple(end for begin, end in reasoning.wrappers if not begin) if reasoning else ()
    closing: tuple[str, ...] = ()
    inner_begin = (begin,) if reasoning and reasoning.anywhere else ()
    inner_triggers = triggers if calls_in_reasoning else ()
    if reasoning is not None and in_reasoning:
        yield from _read_reasoning(source, writer, reasoning, inner_triggers, read_calls)
    openings = (*((begin,) if begin else ()), *wrappers, *leads)
    at_edge = in_reasoning or not in_content
    while True:
        trigger: str | None = None
        if at_edge:
            yield from source.skip_space()
            opening = yield from source.ahead(openings)
            if opening in wrappers:
                yield from source.match(opening)
                closing = (wrappers[opening],)
                writer.edge()
                source.commit()
                continue
            if reasoning is not None and opening == begin:
                yield from source.match(begin)
                yield from _read_reasoning(source, writer, reasoning, inner_triggers, read_calls)
                continue
            if opening is None:
                emit(source.reclaim())
            else:
                trigger = ""
        if trigger is None:
            trigger = yield from source.through(markers(*triggers, *closing, *closings, *inner_begin), emit)
        if trigger in (*closing, *closings):
            writer.edge()
            source.commit()
            at_edge = False
            continue
        if reasoning is not None and trigger in inner_begin:
            yield from _read_reasoning(source, writer, reasoning, inner_triggers, read_calls)
            at_edge = True
            continue
        if trigger is None or read_calls is None:
            return
        at_edge = yield from attempt(source, writer, read_calls(source, writer, trigger), marked=bool(trigger))


def _read_reasoning(
    source: Source, writer: Writer, reasoning: ReasoningFormat, triggers: tuple[str, ...], read_calls: Calls | None
) -> Script[None]:
    emit = source.committing(writer.reasoning)
    writer.edge()
    ends = {reasoning.end, *(end for begin, end in reasoning.wrappers if reasoning.anywhere and not begin)}
    stops = markers(*ends, *triggers)
    while (stop := (yield from source.through(stops, emit))) is not None and stop not in ends and read_calls:
        yield from attempt(source, writer, read_calls(source, writer, stop), in_reasoning=True)
    source.commit()
    if stop is not None:
        writer.edge()
