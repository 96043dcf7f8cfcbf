"""Streaming parsers that split generated text into content, reasoning and tool calls.

They run in the API replica, so a job that migrates to another worker carries no parser state. A worker runs one for a
request with stop strings, which end content only.
"""

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from shared.parsers.formats import REASONING_FORMATS, TOOL_FORMATS, OutputFormat
from shared.parsers.offer import Offer
from shared.parsers.parts import CallArguments, CallClosed, CallOpened, Content, Part, Reasoning, Span, Writer
from shared.parsers.source import Script, Source
from shared.parsers.tagged import tagged_script
from shared.protocol.events import Started
from shared.protocol.request import ChatRequest, Tool

__all__ = [
    "CallArguments",
    "CallClosed",
    "CallOpened",
    "Content",
    "Markup",
    "Parser",
    "Part",
    "Reasoning",
    "Span",
    "markup_of",
    "parser_for",
]


class Parser:
    """Incremental parser for the text of one choice. Its methods never raise, whatever the text.

    The concatenated parts do not depend on how the text was split into chunks. A call without a
    :class:`CallClosed` was truncated, or turned out malformed after its name was emitted; text after the error is
    content. If the text ends inside markup, that markup is in no part.
    """

    def __init__(self, script: Callable[[Source, Writer], Script[None]]) -> None:
        self._source = Source()
        self._writer = Writer(self._source)
        self._script = script(self._source, self._writer)

    def feed(self, text: str) -> list[Part]:
        """Process the next chunk of text; return the parts that are now certain."""
        self._source.feed(text)
        next(self._script, None)
        return self._writer.drain()

    @property
    def spans(self) -> Sequence[Span]:
        """The pieces of content among the parts that were returned last, without the blank lines between blocks."""
        return self._writer.spans

    @property
    def settled(self) -> int:
        """Position up to which it is known whether the text is content."""
        return self._writer.settled

    @property
    def in_reasoning(self) -> bool:
        """Whether the text ends inside reasoning."""
        return self._writer.in_reasoning

    @property
    def incomplete(self) -> bool:
        """Whether the text ended inside a call."""
        return self._source.incomplete

    @property
    def dropped(self) -> bool:
        """Whether the text ended inside markup, which was discarded."""
        return self._source.dropped

    def finish(self, *, cut: bool = False) -> list[Part]:
        """Signal the end of the text; return the parts held back so far.

        ``cut``: the text was truncated by a limit, so a partial marker at its end is markup, not content.
        """
        self._source.end(cut=cut)
        next(self._script, None)
        if self.dropped:
            self._writer.edge()
        if not cut and self._writer.silent:
            # A model that wrote only markup has an answer nevertheless.
            self._writer.content(self._source.last_dropped)
        return self._writer.finish()


def parser_for(
    output: OutputFormat, tools: Sequence[Tool] = (), *, in_reasoning: bool = False, in_content: bool = False
) -> Parser | None:
    """Return a parser for one choice, or ``None`` if all of its text is content.

    ``tools`` are the tools that the model may call; empty if the request has none or sets ``tool_choice: "none"``.
    ``in_reasoning``: the prompt ends inside the reasoning block (:meth:`OutputFormat.opens_reasoning`). ``in_content``:
    the prompt ends inside content.
    """
    offer = Offer(tools)
    reasoning = REASONING_FORMATS[output.reasoning] if output.reasoning else None
    tool_format = TOOL_FORMATS[output.tools] if output.tools else None
    if script := (tool_format and tool_format.script) or (reasoning and reasoning.script):
        return Parser(partial(script, in_reasoning=in_reasoning, offer=offer))
    read = tool_format.read if tool_format and tools else None
    if tool_format is None or read is None:
        if reasoning is None:
            return None
        return Parser(partial(tagged_script, reasoning=reasoning, in_reasoning=in_reasoning, in_content=in_content))
    return Parser(
        partial(
            tagged_script,
            reasoning=reasoning,
            in_reasoning=in_reasoning,
            in_content=in_content,
            triggers=tool_format.triggers,
            leads=tool_format.leads_for(offer.names),
            read_calls=partial(read, form=tool_format, offer=offer),
            calls_in_reasoning=tool_format.in_reasoning,
        )
    )


class Markup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a text may contain besides content: the arguments of :func:`parser_for`."""

    output: OutputFormat
    tools: tuple[Tool, ...] = ()
    in_reasoning: bool = False
    in_content: bool = False

    def parser(self) -> Parser | None:
        """Return a new parser for the text, or ``None`` if all of it is content."""
        return parser_for(self.output, self.tools, in_reasoning=self.in_reasoning, in_content=self.in_content)


def markup_of(request: ChatRequest, started: Started) -> Markup | None:
    """Return the markup of a job's text; ``None`` if all of it is content. ``started`` names the formats.

    Plain completions are not parsed. Neither are chats with ``skip_special_tokens: false``, as in OpenVINO Model
    Server.
    """
    if request.prompts or not request.sampling.skip_special_tokens or not (started.tools or started.reasoning):
        return None
    output = OutputFormat(tools=started.tools or None, reasoning=started.reasoning or None)
    tools = request.tools if request.tool_choice != "none" else ()
    continued = request.turn == "continued" and bool(request.messages[-1].content)
    return Markup(output=output, tools=tools, in_reasoning=started.in_reasoning, in_content=continued)
