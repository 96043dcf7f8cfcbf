"""Onyx (Muse): messages with a recipient. Those to the model are reasoning, those to the user contain no calls."""

import re

import msgspec

from shared.parsers.families.elements import ATEM
from shared.parsers.format import ReasoningFormat
from shared.parsers.offer import Offer
from shared.parsers.parts import Writer, attempt
from shared.parsers.source import NAME_LIMIT, Malformed, Script, Source, markers

_START = "<|start|>"
_MESSAGE = "<|message|>"
_ENDS = ("<|eom|>", "<|eot|>")
_TOKENS = (_START, _MESSAGE, *_ENDS)
_BODY_END = (*_ENDS, _START)
_recipient = re.compile(r"\bto=(\S+)")


def onyx_script(source: Source, writer: Writer, *, in_reasoning: bool, offer: Offer) -> Script[None]:
    """Read the whole output. ``in_reasoning``: the prompt ends inside a message to the model itself."""
    marker: str | None = None
    if not in_reasoning:
        yield from source.skip_space()
        # The prompt contains the start of the first header.
        marker = yield from source.match("to=", _MESSAGE, _START)
        if marker is None:
            writer.content(source.reclaim())
    private, quoted = in_reasoning, False
    while True:
        if marker in ("to=", _START):
            try:
                text, _ = yield from source.until(markers(_MESSAGE), NAME_LIMIT)
            except Malformed:
                if not (yield from source.peek()):
                    source.drop()
                    source.incomplete = True
                    return
                writer.content(source.reclaim())
                text = ""
            recipient = _recipient.search(f"{marker}{text}")
            private, quoted = ((recipient or [""] * 2)[1] == name for name in ("self", "user"))
        writer.edge()
        source.commit()
        marker = yield from _body(source, writer, bool(offer) and not (private or quoted), offer, private=private)
        if marker is None:
            return
        if marker in _ENDS:
            private = quoted = False
            # Models forget the start of the next header.
            yield from source.skip_space()
            marker = (yield from source.match("to=")) or marker


def _body(source: Source, writer: Writer, with_calls: bool, offer: Offer, *, private: bool) -> Script[str | None]:
    """Read a message and what ends it, which is returned; None at the end of the text."""
    emit = source.committing(writer.reasoning if private else writer.content)
    stops = markers(*_BODY_END, *(ATEM.triggers if with_calls else ()))
    while (stop := (yield from source.through(stops, emit))) in ATEM.triggers:
        calls = ATEM.read(source, writer, stop, ATEM, offer) if ATEM.read and stop else None
        if calls is not None:
            yield from attempt(source, writer, calls)
    return stop


TOOLS = (
    msgspec.structs.replace(
        ATEM, script=onyx_script, signs=(_MESSAGE,), special_tokens=(*ATEM.special_tokens, *_TOKENS)
    ),
)
REASONING = (
    ReasoningFormat(
        name="onyx",
        begin=" to=self<|message|>",
        end="<|eom|>",
        special_tokens=_TOKENS,
        turn="<|start|>assistant",
        content=" to=user<|message|>",
        script=onyx_script,
    ),
)
