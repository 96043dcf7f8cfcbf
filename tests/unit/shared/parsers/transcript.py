"""A model's text and its meaning, and the tools that the texts call."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from shared.parsers import Parser, parser_for
from shared.parsers.formats import OutputFormat, ReasoningFormatName, ToolFormatName
from shared.protocol.request import Tool

WEATHER = Tool(
    name="get_weather",
    parameters=msgspec.json.encode(
        {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer"},
                "metric": {"type": ["boolean", "null"]},
                "zip": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "filters": {"type": "object"},
                "anything": {},
            },
        }
    ).decode(),
)
TIME = Tool(name="get_time")
RUN = Tool(
    name="run-code",
    parameters='{"type": "object", "properties": {"code": {"type": "string"}}}',
)
TOOLS = (WEATHER, TIME, RUN)


@dataclass(frozen=True, kw_only=True)
class Transcript:
    """A text and what it means. ``calls`` holds names and decoded arguments."""

    name: str
    text: str
    tools: ToolFormatName | None = None
    reasoning: ReasoningFormatName | None = None
    in_reasoning: bool = False
    content: str = ""
    thoughts: str = ""
    calls: tuple[tuple[str, Any], ...] = ()

    def parser(self) -> Parser:
        """A new parser for the text."""
        output = OutputFormat(tools=self.tools, reasoning=self.reasoning)
        tools = TOOLS if self.tools else ()
        parser = parser_for(output, tools, in_reasoning=self.in_reasoning)
        assert parser is not None
        return parser


def _read() -> tuple[Transcript, ...]:
    lines = (Path(__file__).parent / "transcripts.jsonl").read_bytes().splitlines()
    return tuple(msgspec.json.decode(line, type=Transcript) for line in lines)


TRANSCRIPTS = _read()
"""What models of each family write, and what a client should get of it, one a line of transcripts.jsonl."""
