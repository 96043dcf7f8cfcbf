"""Tool calls that are a name, a marker, and the arguments as JSON."""

import re

from shared.parsers.format import ToolFormat
from shared.parsers.json_calls import stream_arguments
from shared.parsers.offer import Offer
from shared.parsers.parts import Writer
from shared.parsers.source import NAME_LIMIT, Malformed, Script, Source, markers

_PLAIN = re.compile(r"\s*(?P<name>\S+)\s*")


def read_named_calls(
    source: Source,
    writer: Writer,
    trigger: str,
    form: ToolFormat,
    offer: Offer,
    *,
    call: str,
    name_end: str,
    header: re.Pattern[str] = _PLAIN,
    skipped: str = "",
) -> Script[None]:
    """Read calls, each ``call``, a text with the name as in ``header``, ``name_end``, and a JSON object.

    ``skipped`` may be where a call is, and is no part of the content behind it. The end of a call is that of its shape.
    Raises :class:`Malformed` on invalid input.
    """
    if skipped and not trigger and (yield from source.match(skipped)) is not None:
        source.commit()
        return
    if trigger and trigger != call:
        yield from source.skip_space()
        yield from source.expect(call)
    end = form.shape.end.strip()
    while True:
        text, _ = yield from source.until(markers(name_end), NAME_LIMIT)
        found = header.fullmatch(text)
        if found is None:
            raise Malformed
        if (yield from source.skip_space()) == "{":
            writer.open(found["name"])
            yield from stream_arguments(source, writer)
        elif not (yield from source.peek()) or (end and (yield from source.ahead((end,))) is not None):
            writer.call(found["name"], "{}")
        else:
            raise Malformed
        source.commit()
        yield from source.skip_space()
        if end and (yield from source.match(end)) is not None:
            source.commit()
            yield from source.skip_space()
        if call in form.triggers or (yield from source.match(call)) is None:
            break
    if (yield from source.match(*form.ends)) is not None:
        source.commit()
