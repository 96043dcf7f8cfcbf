"""Streaming parsers that split generated text into content, reasoning and tool calls.

They run in the API replica, so a job that migrates to another worker carries no parser state.
"""

from collections.abc import Callable, Sequence
from functools import partial

from api.parsers.custom_input import CustomInputs
from api.parsers.deepseek import read_deepseek_calls
from api.parsers.harmony import harmony_script
from api.parsers.json_calls import read_json_calls, read_mistral_calls
from api.parsers.parts import CallArguments, CallClosed, CallOpened, Content, Part, Reasoning, Writer
from api.parsers.pythonic import read_pythonic_calls
from api.parsers.qwen_xml import parameter_types, read_qwen_xml_calls
from api.parsers.source import Script, Source
from api.parsers.tagged import CallReader, tagged_script
from shared.protocol.formats import REASONING_FORMATS, TOOL_FORMATS, OutputFormat, ToolFormat
from shared.protocol.request import Tool

__all__ = [
    "CallArguments",
    "CallClosed",
    "CallOpened",
    "Content",
    "CustomInputs",
    "Parser",
    "Part",
    "Reasoning",
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
        self._writer = Writer()
        self._script = script(self._source, self._writer)

    def feed(self, text: str) -> list[Part]:
        """Process the next chunk of text; return the parts that are now certain."""
        self._source.feed(text)
        next(self._script, None)
        return self._writer.drain()

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
        return self._writer.finish()


def parser_for(output: OutputFormat, tools: Sequence[Tool] = (), *, in_reasoning: bool = False) -> Parser | None:
    """Return a parser for one choice, or ``None`` if all of its text is content.

    ``tools`` are the tools that the model may call; empty if the request has none or sets ``tool_choice: "none"``.
    ``in_reasoning``: the prompt ends inside the reasoning block (:meth:`OutputFormat.opens_reasoning`).
    """
    if "harmony" in (output.tools, output.reasoning):
        return Parser(partial(harmony_script, in_reasoning=in_reasoning, with_calls=bool(tools)))
    tool_format = TOOL_FORMATS[output.tools] if output.tools and tools else None
    reasoning = REASONING_FORMATS[output.reasoning] if output.reasoning else None
    if tool_format is None:
        if reasoning is None:
            return None
        return Parser(partial(tagged_script, reasoning=reasoning, in_reasoning=in_reasoning))
    return Parser(
        partial(
            tagged_script,
            reasoning=reasoning,
            in_reasoning=in_reasoning,
            triggers=tool_format.triggers,
            leads=tool_format.leads,
            read_calls=_reader(tool_format, tools),
            calls_in_reasoning=tool_format.in_reasoning,
        )
    )


def _reader(tool_format: ToolFormat, tools: Sequence[Tool]) -> CallReader:
    names = frozenset(tool.name for tool in tools)
    match tool_format.name:
        case "qwen3_coder":
            return partial(read_qwen_xml_calls, tools={tool.name: parameter_types(tool.parameters) for tool in tools})
        case "llama_pythonic" | "lfm2":
            return partial(read_pythonic_calls, known=names, ends=tool_format.ends)
        case "mistral" | "mistral_args":
            return read_mistral_calls
        case "deepseek_v3" | "deepseek_v31":
            return read_deepseek_calls
        case "llama3_json":
            return partial(read_json_calls, known=names, ends=tool_format.ends, separators=",;")
        case _:
            return partial(read_json_calls, known=names, ends=tool_format.ends)
