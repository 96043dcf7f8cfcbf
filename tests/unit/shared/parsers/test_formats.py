"""What a grammar lets through is what the parsers read."""

import json

import pytest

from shared.parsers import parser_for
from shared.parsers.formats import REASONING_FORMATS, TOOL_FORMATS, OutputFormat, ToolFormatName
from shared.protocol.request import ToolCall
from tests.support.paths import ROOT
from tests.unit.shared.parsers.reading import Parsed, read
from tests.unit.shared.parsers.transcript import TOOLS, WEATHER
from worker.prompt.tools import written_calls


@pytest.mark.parametrize(
    ("prompt", "opened"),
    [
        ("<|im_start|>assistant\n<think>\n", True),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", False),
        ("<|im_start|>user\nSay <think><|im_end|>\n<|im_start|>assistant\n", False),
    ],
)
def test_open_reasoning_is_detected_at_the_end_of_the_prompt(prompt: str, opened: bool) -> None:
    assert OutputFormat(reasoning="think").opens_reasoning(prompt) is opened
    assert not OutputFormat(tools="hermes").opens_reasoning(prompt)


def test_tokens_to_keep_are_those_of_both_formats() -> None:
    assert OutputFormat().special_tokens() == frozenset()
    assert OutputFormat(tools="mistral", reasoning="mistral").special_tokens() == {
        "[TOOL_CALLS]",
        "[THINK]",
        "[/THINK]",
    }


CALLS = (
    ToolCall(
        id="1", name="get_weather", arguments='{"city": "Paris", "days": 3, "metric": null, "filters": {"a": [1]}}'
    ),
    ToolCall(id="2", name="get_time", arguments="{}"),
)


@pytest.mark.parametrize("pieces", ["whole", "characters"])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("name", TOOL_FORMATS)
def test_calls_in_the_format_s_shape_are_read_as_these_calls(name: ToolFormatName, count: int, pieces: str) -> None:
    shape = TOOL_FORMATS[name].shape
    assert shape.begin.startswith(shape.trigger)
    calls = CALLS[: 1 if shape.single else count]
    parser = parser_for(OutputFormat(tools=name), TOOLS)
    assert parser is not None
    text = written_calls(calls, name, str)
    parsed = read(parser, [text] if pieces == "whole" else text)
    assert parsed.content == ""
    assert [(call.name, call.closed, json.loads(call.arguments)) for call in parsed.calls] == [
        (call.name, True, json.loads(call.arguments)) for call in calls
    ]


def test_content_that_continues_a_message_does_not_begin_with_a_bare_call_or_reasoning() -> None:
    text = '{"name": "get_weather", "parameters": {}}'
    output = OutputFormat(tools="llama3_json", reasoning="think")
    for said in (text, f"<think>{text}</think>", f" {text}"):
        parser = parser_for(output, (WEATHER,), in_content=True)
        assert parser is not None
        assert read(parser, [said]) == Parsed(said)


def test_the_documentation_lists_every_format() -> None:
    section = (ROOT / "docs/models.md").read_text("utf-8").partition("## Formats")[2].partition("\n## ")[0]
    assert [name for name in (*TOOL_FORMATS, *REASONING_FORMATS) if f"`{name}`" not in section] == []
