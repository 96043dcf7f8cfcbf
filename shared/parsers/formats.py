"""Output formats: how model families mark reasoning and tool calls in generated text.

The worker finds a model's format by rendering its chat template, and reports its name; the API selects the parser by
name.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from shared.parsers.families import REASONING, TOOLS
from shared.parsers.format import (
    CallShape,
    ReasoningFormat,
    ReasoningFormatName,
    ToolFormat,
    ToolFormatName,
)
from shared.protocol.formats import NONE

__all__ = [
    "AUTO",
    "MARKERS",
    "NONE",
    "PARSERS",
    "REASONING_FORMATS",
    "TOOL_FORMATS",
    "CallShape",
    "OutputFormat",
    "ParserKind",
    "ReasoningFormat",
    "ReasoningFormatName",
    "ToolFormat",
    "ToolFormatName",
]

TOOL_FORMATS: Mapping[ToolFormatName, ToolFormat] = {form.name: form for form in TOOLS}
REASONING_FORMATS: Mapping[ReasoningFormatName, ReasoningFormat] = {form.name: form for form in REASONING}

MARKERS = frozenset(token for form in (*TOOLS, *REASONING) for token in form.special_tokens)
"""The special tokens of all formats. A grammar can match only these special tokens by their text."""


ParserKind = Literal["tool_parser", "reasoning_parser"]
AUTO = "auto"
"""The format that the chat template shows."""


def _names(forms: Iterable[ToolFormat | ReasoningFormat]) -> Mapping[str, str]:
    return {AUTO: AUTO, NONE: NONE, **{name: form.name for form in forms for name in (form.name, *form.aliases)}}


PARSERS: Mapping[ParserKind, Mapping[str, str]] = {"tool_parser": _names(TOOLS), "reasoning_parser": _names(REASONING)}
"""What a name means: :data:`AUTO`, :data:`NONE`, or a format. Names are ours, OpenVINO Model Server's and vLLM's."""


class OutputFormat(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The formats that a model's output may contain besides plain content. ``None``: none, or an unknown one."""

    tools: ToolFormatName | None = None
    reasoning: ReasoningFormatName | None = None

    def special_tokens(self) -> frozenset[str]:
        """Return the tokens that must stay in the text when special tokens are skipped."""
        tools = TOOL_FORMATS[self.tools].special_tokens if self.tools else ()
        reasoning = REASONING_FORMATS[self.reasoning].special_tokens if self.reasoning else ()
        return frozenset(tools + reasoning)

    def opens_reasoning(self, prompt: str) -> bool:
        """Return whether the output starts inside the reasoning, because the rendered ``prompt`` opens it at its end.

        Only the end is checked: it comes from the template, whereas a client's message may contain the same text.
        """
        return self.reasoning is not None and prompt.rstrip().endswith(REASONING_FORMATS[self.reasoning].begin.rstrip())
