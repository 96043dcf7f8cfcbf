"""Reading what looks like calls, and taking it for content where it is none."""

from api.parsers.source import Malformed, Script, Source
from api.parsers.writer import Writer


def attempt(source: Source, writer: Writer, calls: Script[None], *, marked: bool = True) -> Script[bool]:
    """Run the script ``calls``; return whether it found calls and nothing else.

    What it has read and not told is content, except where the text ends inside a call: markup is never content.
    ``marked`` is whether a marker has announced the calls. Without one, what the text ends inside is taken for a call
    only where the text was cut off.
    """
    opened = writer.calls
    try:
        yield from calls
        sound = True
    except Malformed:
        sound = False
    if source.exhausted and (marked or source.cut or writer.calls > opened):
        source.drop()
    left = source.reclaim()
    writer.content(left)
    return sound and not left.strip()
