"""OpenAI's harmony response format, written by gpt-oss: messages with a channel and an optional recipient.

The channel ``analysis`` is reasoning, ``final`` and ``commentary`` are content. A message whose recipient is
``functions.NAME`` is a tool call.
"""

import re
from collections.abc import Callable

from shared.parsers.json_calls import stream_arguments
from shared.parsers.parts import Writer, attempt
from shared.parsers.source import Malformed, Script, Source, markers
from shared.protocol.formats import HARMONY_CHANNEL, HARMONY_ENDS, HARMONY_MESSAGE, HARMONY_START

HEADER_LIMIT = 512
"""Maximum length of a message header in characters."""

_HEADER_STARTS = (HARMONY_START, HARMONY_CHANNEL)
_HEADER_END = markers(HARMONY_MESSAGE)
_BODY_END = markers(*HARMONY_ENDS, *_HEADER_STARTS)
_RECIPIENT = "to=functions."
_recipient = re.compile(r"\bto=functions\.([^\s<]+)")
_analysis = re.compile(r"<\|channel\|>\s*analysis\b")


def harmony_script(source: Source, writer: Writer, *, in_reasoning: bool, with_calls: bool) -> Script[None]:
    """Read the whole output. ``in_reasoning``: the prompt ends inside an analysis message.

    Without ``with_calls``, a message to a function is content, because the request offers no tools.
    """
    emit_content = _emitter(source, writer.content)
    if in_reasoning:
        marker = yield from source.through(_BODY_END, _emitter(source, writer.reasoning))
    else:
        yield from source.skip_space()
        # The prompt contains the start of the first header. A recipient may precede the channel.
        marker = yield from source.match(*_HEADER_STARTS, _RECIPIENT)
        if marker is None:
            emit_content(source.reclaim())
            marker = yield from source.through(_BODY_END, emit_content)
    while marker is not None:
        if marker in HARMONY_ENDS:
            source.commit()
            marker = yield from source.through(_BODY_END, emit_content)
        else:
            marker = yield from _message(source, writer, marker, with_calls)


def _message(source: Source, writer: Writer, start: str, with_calls: bool) -> Script[str | None]:
    """Read a message after the ``start`` of its header; return the marker that follows it, ``None`` at the end."""
    emit_content = _emitter(source, writer.content)
    try:
        header, _ = yield from source.until(_HEADER_END, HEADER_LIMIT)
    except Malformed:
        if not (yield from source.peek()):
            source.incomplete = True
            return None
        emit_content(source.reclaim())
        return (yield from source.through(_BODY_END, emit_content))
    header = start + header
    recipient = _recipient.search(header)
    writer.edge()
    if recipient and with_calls:
        yield from attempt(source, writer, _call(source, writer, recipient[1]))
        return (yield from source.through(_BODY_END, emit_content))
    source.commit()
    if _analysis.search(header):
        return (yield from source.through(_BODY_END, _emitter(source, writer.reasoning)))
    return (yield from source.through(_BODY_END, emit_content))


def _call(source: Source, writer: Writer, name: str) -> Script[None]:
    following = yield from source.skip_space()
    if following == "{":
        writer.open(name)
        yield from stream_arguments(source, writer)
    elif (yield from source.ahead(HARMONY_ENDS)) is not None:
        writer.open(name)
        writer.arguments("{}")
        writer.close()
        source.commit()
    else:
        raise Malformed


def _emitter(source: Source, emit: Callable[[str], None]) -> Callable[[str], None]:
    """Return a function that passes text to ``emit`` and commits what was read."""

    def emit_and_commit(piece: str) -> None:
        emit(piece)
        source.commit()

    return emit_and_commit
