"""What a grammar lets through is what the parsers read."""

import json

import pytest

from shared.parsers import parser_for
from shared.protocol.formats import TOOL_FORMATS, OutputFormat, ToolFormatName
from tests.unit.shared.parsers.reading import Call, Parsed, read
from tests.unit.shared.parsers.transcript import WEATHER


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


CONTENTS = {
    "arguments": ['{"city": "Paris"}'],
    "calls": ['[{"name": "get_weather", "arguments": {"city": "Paris"}}]'],
    "xml": ["<parameter=city>Paris</parameter>", "<parameter=city>\nParis\n</parameter>"],
}


@pytest.mark.parametrize("name", TOOL_FORMATS)
def test_a_call_of_the_format_s_shape_is_read_as_that_call(name: ToolFormatName) -> None:
    shape = TOOL_FORMATS[name].shape
    if shape is None:
        assert name in ("llama_pythonic", "lfm2")
        return
    assert shape.begin.startswith(shape.trigger)
    for content in CONTENTS[shape.content]:
        parser = parser_for(OutputFormat(tools=name), [WEATHER])
        assert parser is not None
        parsed = read(parser, shape.begin_for("get_weather") + content + shape.end)
        assert parsed.content == ""
        assert parsed.calls == [Call("get_weather", parsed.calls[0].arguments, closed=True)]
        assert json.loads(parsed.calls[0].arguments) == {"city": "Paris"}


def test_content_that_continues_a_message_does_not_begin_with_a_bare_call_or_reasoning() -> None:
    text = '{"name": "get_weather", "parameters": {}}'
    output = OutputFormat(tools="llama3_json", reasoning="think")
    for said in (text, f"<think>{text}</think>", f" {text}"):
        parser = parser_for(output, (WEATHER,), in_content=True)
        assert parser is not None
        assert read(parser, [said]) == Parsed(said)
