"""Speculative parsing of tool calls, with a fallback to content."""

from api.parsers.source import Malformed, Script, Source
from api.parsers.writer import Writer


def attempt(source: Source, writer: Writer, calls: Script[None], *, marked: bool = True) -> Script[bool]:
    """Run the script ``calls``; return whether it found calls and nothing else.

    Text that it consumed but did not emit becomes content. The exception is text that ends inside a call: that is
    markup, which is dropped. ``marked``: a marker introduced the calls. Without a marker, and before a call has been
    opened, unfinished text counts as a call only if the text was truncated.
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
