"""gpt-oss' answers: a row of messages, each with a header that names its channel and perhaps a recipient.

Format: OpenAI's harmony response format. The channel ``analysis`` is reasoning, ``final`` and ``commentary``
are content, and a message to ``functions.name`` is a call.
"""

import re
from collections.abc import Callable

from api.parsers.attempt import attempt
from api.parsers.json_calls import stream_arguments
from api.parsers.source import Malformed, Script, Source, markers
from api.parsers.writer import Writer
from shared.protocol.formats import HARMONY_CHANNEL, HARMONY_ENDS, HARMONY_MESSAGE, HARMONY_START

HEADER_LIMIT = 512

_HEADER_STARTS = (HARMONY_START, HARMONY_CHANNEL)
_HEADER_END = markers(HARMONY_MESSAGE)
_BODY_END = markers(*HARMONY_ENDS, *_HEADER_STARTS)
_RECIPIENT = "to=functions."
_recipient = re.compile(r"\bto=functions\.([^\s<]+)")
_analysis = re.compile(r"<\|channel\|>\s*analysis\b")


def harmony_script(source: Source, writer: Writer, *, in_reasoning: bool, with_calls: bool) -> Script[None]:
    """Read a whole answer. ``in_reasoning``: the prompt has begun a message of reasoning.

    Without ``with_calls`` a message to a function is content: nobody asked for calls.
    """
    tell_content = _teller(source, writer.content)
    if in_reasoning:
        marker = yield from source.through(_BODY_END, _teller(source, writer.reasoning))
    else:
        yield from source.skip_space()
        # The prompt has begun the first header, and a recipient may stand before the channel.
        marker = yield from source.match(*_HEADER_STARTS, _RECIPIENT)
        if marker is None:
            tell_content(source.reclaim())
            marker = yield from source.through(_BODY_END, tell_content)
    while marker is not None:
        if marker in HARMONY_ENDS:
            source.forget()
            marker = yield from source.through(_BODY_END, tell_content)
        else:
            marker = yield from _message(source, writer, marker, with_calls)


def _message(source: Source, writer: Writer, start: str, with_calls: bool) -> Script[str | None]:
    """Read a message behind the ``start`` of its header; return the marker behind it, ``None`` at the end."""
    tell_content = _teller(source, writer.content)
    try:
        header, _ = yield from source.until(_HEADER_END, HEADER_LIMIT)
    except Malformed:
        if not (yield from source.peek()):
            return None
        tell_content(source.reclaim())
        return (yield from source.through(_BODY_END, tell_content))
    header = start + header
    recipient = _recipient.search(header)
    writer.edge()
    if recipient and with_calls:
        yield from attempt(source, writer, _call(source, writer, recipient[1]))
        return (yield from source.through(_BODY_END, tell_content))
    source.forget()
    if _analysis.search(header):
        return (yield from source.through(_BODY_END, _teller(source, writer.reasoning)))
    return (yield from source.through(_BODY_END, tell_content))


def _call(source: Source, writer: Writer, name: str) -> Script[None]:
    following = yield from source.skip_space()
    if following == "{":
        writer.open(name)
        yield from stream_arguments(source, writer)
    elif (yield from source.ahead(HARMONY_ENDS)) is not None:
        writer.open(name)
        writer.arguments("{}")
        writer.close()
        source.forget()
    elif not following:
        # Cut off behind the header, which says nothing to a client.
        source.forget()
    else:
        raise Malformed


def _teller(source: Source, tell: Callable[[str], None]) -> Callable[[str], None]:
    """``tell``, after which nothing of what has been read is left untold."""

    def tell_and_forget(piece: str) -> None:
        tell(piece)
        source.forget()

    return tell_and_forget
