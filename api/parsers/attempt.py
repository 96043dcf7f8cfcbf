"""Reading what looks like calls, and taking it for content where it is none."""

from api.parsers.source import Malformed, Script, Source
from api.parsers.writer import Writer


def attempt(source: Source, writer: Writer, calls: Script[None]) -> Script[bool]:
    """Run the script ``calls``; return whether it found calls and nothing else.

    What it has read and not told is content, except where the text ends behind the opening of a call: then it
    is a piece of the format.
    """
    opened = writer.calls
    try:
        yield from calls
        sound = True
    except Malformed:
        sound = False
    if source.exhausted and writer.calls > opened:
        source.forget()
    left = source.reclaim()
    writer.content(left)
    return sound and not left.strip()
