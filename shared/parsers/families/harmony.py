"""OpenAI's harmony response format, written by gpt-oss: messages with a channel and an optional recipient.

The channel ``analysis`` is reasoning, ``final`` and ``commentary`` are content. A message whose recipient is
``functions.NAME`` is a tool call.
"""

import re

from shared.parsers.format import CallShape, ReasoningFormat, ToolFormat
from shared.parsers.json_calls import stream_arguments
from shared.parsers.offer import Offer
from shared.parsers.parts import Writer, attempt
from shared.parsers.source import Malformed, Script, Source, markers

_START = "<|start|>"
_CHANNEL = "<|channel|>"
_MESSAGE = "<|message|>"
_ENDS = ("<|end|>", "<|call|>", "<|return|>")
_TOKENS = (_START, _CHANNEL, "<|constrain|>", _MESSAGE, *_ENDS)

HEADER_LIMIT = 512
"""Maximum length of a message header in characters."""

_HEADER_STARTS = (_START, _CHANNEL)
_HEADER_END = markers(_MESSAGE)
_BODY_END = markers(*_ENDS, *_HEADER_STARTS)
_RECIPIENT = "to=functions."
_recipient = re.compile(r"\bto=functions\.([^\s<]+)")
_analysis = re.compile(r"<\|channel\|>\s*analysis\b")


def harmony_script(source: Source, writer: Writer, *, in_reasoning: bool, offer: Offer) -> Script[None]:
    """Read the whole output. ``in_reasoning``: the prompt ends inside an analysis message.

    If the request offers no tools, a message to a function is content.
    """
    emit_content = source.committing(writer.content)
    if in_reasoning:
        marker = yield from source.through(_BODY_END, source.committing(writer.reasoning))
    else:
        yield from source.skip_space()
        # The prompt contains the start of the first header. A recipient may precede the channel.
        marker = yield from source.match(*_HEADER_STARTS, _RECIPIENT)
        if marker is None:
            emit_content(source.reclaim())
            marker = yield from source.through(_BODY_END, emit_content)
    while marker is not None:
        if marker in _ENDS:
            writer.in_reasoning = False
            source.commit()
            marker = yield from source.through(_BODY_END, emit_content)
        else:
            marker = yield from _message(source, writer, marker, bool(offer))


def _message(source: Source, writer: Writer, start: str, with_calls: bool) -> Script[str | None]:
    """Read a message after the ``start`` of its header; return the marker that follows it, ``None`` at the end."""
    emit_content = source.committing(writer.content)
    try:
        header, _ = yield from source.until(_HEADER_END, HEADER_LIMIT)
    except Malformed:
        if not (yield from source.peek()):
            source.drop()
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
        return (yield from source.through(_BODY_END, source.committing(writer.reasoning)))
    return (yield from source.through(_BODY_END, emit_content))


def _call(source: Source, writer: Writer, name: str) -> Script[None]:
    following = yield from source.skip_space()
    if following == "{":
        writer.open(name)
        yield from stream_arguments(source, writer)
    elif (yield from source.ahead(_ENDS)) is not None:
        writer.call(name, "{}")
        source.commit()
    else:
        raise Malformed


TOOLS = (
    ToolFormat(
        name="harmony",
        aliases=("gptoss", "openai"),
        special_tokens=_TOKENS,
        signs=(_CHANNEL,),
        script=harmony_script,
        shape=CallShape(
            trigger="<|channel|>commentary to=functions.",
            begin="<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>",
            end="<|call|>",
            single=True,
        ),
    ),
)
REASONING = (
    ReasoningFormat(
        name="harmony",
        aliases=("gptoss", "openai_gptoss"),
        begin="<|channel|>analysis<|message|>",
        end="<|end|>",
        special_tokens=_TOKENS,
        turn=f"{_START}assistant",
        content="<|channel|>final<|message|>",
        script=harmony_script,
    ),
)
