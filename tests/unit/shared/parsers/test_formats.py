"""Formats are found in chat templates, and what a grammar lets through is what the parsers read."""

import json

import pytest

from shared.parsers import parser_for
from shared.protocol.formats import TOOL_FORMATS, OutputFormat, ToolFormatName, detect
from tests.unit.shared.parsers.reading import Call, Parsed, read
from tests.unit.shared.parsers.transcript import WEATHER

QWEN3 = """{{- '</tools>\\n<tool_call>\\n{"name": <function-name>, "arguments": <args>}\\n</tool_call>' }}
{%- set content = content.split('</think>')[-1] %}{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}"""
QWEN25 = "{{- '<tool_call>\\n{\"name\": \"' }}{{- tool_call.name }}{{- '</tool_call>' }}"
QWEN_CODER = "{{- '<tool_call>\\n<function=' + name + '>\\n' }}{{- '<parameter=' + key + '>\\n' }}{{- '</tool_call>' }}"
LLAMA31 = """{{- 'Respond in {"name": function name, "parameters": dictionary of argument name and its value}.' }}
{{- "<|python_tag|>" + tool_call.name + ".call(" }}"""
LLAMA32 = """{{- 'Respond in {"name": function name, "parameters": dictionary of argument name and its value}.' }}"""
LLAMA_PYTHONIC = "{{- 'in the format of [func_name1(params_name1=params_value1), func_name2(params)]' }}"
MISTRAL = "{{- '[AVAILABLE_TOOLS]' }}{{- '[TOOL_CALLS] [' }}"
MAGISTRAL = "{{- '[THINK]' + text + '[/THINK]' }}{{- '[TOOL_CALLS]' + name + '[ARGS]' + arguments }}"
PHI4_MINI = "{{ '<|system|>' + message['content'] + '<|tool|>' + message['tools'] + '<|/tool|>' + '<|end|>' }}"
PHI4_REASONING = "{{ 'two sections: <think> {Thought section} </think> {Solution section}' }}"
GRANITE33 = "{{ '<|start_of_role|>' }}{{ 'respond with <|tool_call|>' }}{{ '<think></think>' }}"
GRANITE4 = "{{ '<|start_of_role|>' }}{{ '<tool_call>\\n{\"name\": ' }}{{ '</tool_call>' }}"
DEEPSEEK_R1 = (
    "{{'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + type + '<｜tool▁sep｜>' + name + '\\n' + '```json' + '\\n'}}"  # noqa: RUF001
    "{% set content = content.split('</think>')[-1] %}{{'<think>\\n'}}"
)
DEEPSEEK_V31 = "{{'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + name + '<｜tool▁sep｜>' + arguments}}{{'</think>'}}"  # noqa: RUF001
GPT_OSS = "{{- '<|start|>assistant<|channel|>analysis<|message|>' }}{{- '<|call|>' }}"
LFM2 = "{%- set keep_past_thinking = keep_past_thinking | default(false) -%}{{ 'List of tools: [' }}"
GLM45 = "{{ '<tool_call>' + name }}{{ '<arg_key>' + key + '</arg_key>' }}{{ '</tool_call>' }}{{ '<think></think>' }}"
SMOLLM2 = "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"


@pytest.mark.parametrize(
    ("template", "output"),
    [
        (QWEN3, OutputFormat(tools="hermes", reasoning="think")),
        (QWEN25, OutputFormat(tools="hermes")),
        (QWEN_CODER, OutputFormat(tools="qwen3_coder")),
        (LLAMA31, OutputFormat(tools="llama3_json")),
        (LLAMA32, OutputFormat(tools="llama3_json")),
        (LLAMA_PYTHONIC, OutputFormat(tools="llama_pythonic")),
        (MISTRAL, OutputFormat(tools="mistral")),
        (MAGISTRAL, OutputFormat(tools="mistral_args", reasoning="mistral")),
        (PHI4_MINI, OutputFormat(tools="phi4")),
        (PHI4_REASONING, OutputFormat(reasoning="think")),
        (GRANITE33, OutputFormat(tools="granite", reasoning="think")),
        (GRANITE4, OutputFormat(tools="hermes")),
        (DEEPSEEK_R1, OutputFormat(tools="deepseek_v3", reasoning="think")),
        (DEEPSEEK_V31, OutputFormat(tools="deepseek_v31", reasoning="think")),
        (GPT_OSS, OutputFormat(tools="harmony", reasoning="harmony")),
        (LFM2, OutputFormat(tools="lfm2")),
        (GLM45, OutputFormat(reasoning="think")),
        (SMOLLM2, OutputFormat()),
        ("", OutputFormat()),
    ],
)
def test_the_format_is_detected_from_the_template(template: str, output: OutputFormat) -> None:
    assert detect(template) == output


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
