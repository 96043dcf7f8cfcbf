"""Texts that are not quite what the format has: content again, and never an exception."""

import json

import pytest

from shared.parsers import parser_for
from shared.parsers.formats import TOOL_FORMATS, OutputFormat, ToolFormatName
from shared.protocol.request import Tool
from tests.unit.shared.parsers.reading import Call, Parsed, read
from tests.unit.shared.parsers.transcript import TOOLS


def parsed_by(tools: ToolFormatName, text: str) -> Parsed:
    parser = parser_for(OutputFormat(tools=tools), TOOLS)
    assert parser is not None
    return read(parser, text)


@pytest.mark.parametrize(
    ("tools", "text"),
    [
        ("hermes", "Hm.\n<tool_call>\nget_time\n</tool_call>\n"),
        ("hermes", '<tool_call>{"name": 5, "arguments": {}}</tool_call>'),
        ("hermes", '<tool_call>{"name": "", "arguments": {}}</tool_call>'),
        ("hermes", '<tool_call>{"arguments": {}}</tool_call>'),
        ("hermes", '<tool_call>{"name": "get_time", "arguments": [1]}</tool_call>'),
        ("hermes", '<tool_call>{"name": "get_time", "arguments": "not JSON"}</tool_call>'),
        ("hermes", '<tool_call>{"name": "get_time", "colour": 1}</tool_call>'),
        ("hermes", "<tool_call>[]</tool_call>"),
        ("qwen3_coder", "<tool_call>\n<functions>\n"),
        ("qwen3_coder", "<function=" + "a" * 300 + "></function>"),
        ("llama_pythonic", "[get_time(1)]"),
        ("llama_pythonic", "[get_time]"),
        ("llama_pythonic", "[]"),
        ("mistral_args", "[TOOL_CALLS]get_time[ARGS]none"),
        ("phi4", "functools[1, 2]"),
        ("deepseek_v31", "<｜tool▁calls▁begin｜>get_time<｜tool▁calls▁end｜>"),  # noqa: RUF001
        ("deepseek_v3", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_time\n{}"),  # noqa: RUF001
        ("harmony", "<|channel|>commentary to=functions.f<|message|>hello"),
        ("harmony", "<|channel|>" + "a" * 600),
    ],
)
def test_what_is_no_call_is_content(tools: ToolFormatName, text: str) -> None:
    assert parsed_by(tools, text) == Parsed(content=text)


@pytest.mark.parametrize(
    ("tools", "text", "content"),
    [
        ("hermes", 'So.\n<tool_call>{"name": "get_ti', "So."),
        ("hermes", "<tool_call>" * 3, "<tool_call>" * 2),
        ("mistral_args", "So. [TOOL_CALLS]get_time [AR", "So."),
    ],
)
def test_markup_that_the_text_ends_inside_is_not_content(tools: ToolFormatName, text: str, content: str) -> None:
    assert parsed_by(tools, text) == Parsed(content=content)


@pytest.mark.parametrize(
    ("tools", "text"),
    [
        ("harmony", "<|channel|>anal"),
        ("harmony", "<|channel|>commentary to=functions.get_time<|message|>"),
        ("mistral", "[TOOL_CALLS]"),
        ("hermes", '<tool_call>{"name": "get_ti'),
    ],
)
def test_an_answer_that_is_only_markup_is_content(tools: ToolFormatName, text: str) -> None:
    assert parsed_by(tools, text) == Parsed(content=text)


@pytest.mark.parametrize(
    ("tools", "text", "arguments"),
    [
        ("mistral_args", "[TOOL_CALLS]get_weather[ARGS]", {}),
        ("mistral_args", '[TOOL_CALLS]get_weather{"city": "Oslo"}', {"city": "Oslo"}),
        ("mistral", '[{"name": "get_weather", "arguments": {"city": "Oslo"}}]', {"city": "Oslo"}),
        (
            "qwen3_coder",
            "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n<parameter=days>\n3\n</parameter>\n"
            "</function>\n</tool_call>",
            {"city": "Oslo", "days": 3},
        ),
        (
            "qwen3_coder",
            "<tool_call>\n<function=get_weather\n<parameter=city\nOslo\n</parameter>\n</function>\n</tool_call>",
            {"city": "Oslo"},
        ),
        (
            "qwen3_coder",
            "<function=get_weather><parameter=anything>['a', 'b']</parameter></function>",
            {"anything": ["a", "b"]},
        ),
        (
            "qwen3_coder",
            "<function=get_weather><parameter=filters>{'a': None}</parameter></function>",
            {"filters": {"a": None}},
        ),
        (
            "hermes",
            '<tool_call>{"function": {"name": "get_weather", "arguments": {"city": "Oslo"}}}</tool_call>',
            {"city": "Oslo"},
        ),
        ("xlam", '```json\n[{"name": "get_weather", "arguments": {"city": "Oslo"}}]\n```', {"city": "Oslo"}),
        ("gemma4", 'call:get_weather{city:"Oslo",days:03}', {"city": "Oslo", "days": "03"}),
        ("lfm2", "<|tool_call_start|>[get_weather(city='C:\\Users\\x', days=07)]", {"city": "C:\\Users\\x", "days": 7}),
        ("lfm2", "<|tool_call_start|>[get_weather(anything={'a'})]<|tool_call_end|>", {"anything": ["a"]}),
        (
            "minicpm5",
            "<function name='get_weather'><param name='city'><![CDATA[<b>]]></param></function>",
            {"city": "<b>"},
        ),
        ("lfm2", "<|tool_call_start|>[get_weather(city='it's')]<|tool_call_end|>", {"city": "it's"}),
        (
            "lfm2",
            """<|tool_call_start|>[get_weather(anything=['Ann's' , 'a: "b"', {'c':'d's'}], city="\nif a == "b":\n")]""",
            {"anything": ["Ann's", 'a: "b"', {"c": "d's"}], "city": '\nif a == "b":\n'},
        ),
        (
            "lfm2",
            """<|tool_call_start|>[get_weather(city="a = ["b", 1]", days=2,)]<|tool_call_end|>""",
            {"city": 'a = ["b", 1]', "days": 2},
        ),
        ("gemma4", '<|tool_call>:get_weather{city:<|"|>Oslo<|"|>}<tool_call|>', {"city": "Oslo"}),
        (
            "minicpm5",
            "<function name='get_weather'><param name='properties'>{'city': 'Oslo', 'days': 3}</param></function>",
            {"city": "Oslo", "days": 3},
        ),
        (
            "deepseek_v4",
            '<｜DSML｜invoke name="get_weather"><｜DSML｜parameter name="input" string="true">{"city": "Oslo"}'  # noqa: RUF001
            "</｜DSML｜parameter></｜DSML｜invoke>",  # noqa: RUF001
            {"city": "Oslo"},
        ),
        (
            "qwen3_coder",
            '<function=get_weather><parameter=arguments>{"town": "Oslo"}</parameter></function>',
            {"arguments": {"town": "Oslo"}},
        ),
        ("deepseek_v31", "<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜><｜tool▁call▁end｜>", {}),  # noqa: RUF001
    ],
)
def test_what_models_write_almost_right_is_a_call(
    tools: ToolFormatName, text: str, arguments: dict[str, object]
) -> None:
    for pieces in ([text], text):
        parser = parser_for(OutputFormat(tools=tools), TOOLS)
        assert parser is not None
        parsed = read(parser, pieces)
        (call,) = parsed.calls
        assert (parsed.content, call.name, call.closed) == ("", "get_weather", True)
        assert json.loads(call.arguments) == arguments


def test_what_encloses_content_behind_reasoning_is_dropped() -> None:
    for name, text in (
        ("think", "<think>Hm.</think><response>So.</response>"),
        ("hunyuan_a13b", "<think>Hm.</think>\n<answer>\nSo.\n</answer>"),
        ("cohere", "<|START_THINKING|>Hm.<|END_THINKING|><|START_RESPONSE|>So.<|END_RESPONSE|>"),
        ("apriel", "Here are my reasoning steps:\nHm.\n[BEGIN FINAL RESPONSE]\nSo.\n[END FINAL RESPONSE]"),
    ):
        parser = parser_for(OutputFormat(reasoning=name))
        assert parser is not None
        assert read(parser, text) == Parsed(content="So.", reasoning="Hm.")


def test_a_sound_call_behind_a_faulty_one_is_found() -> None:
    parsed = parsed_by("hermes", '<tool_call>{"name" <tool_call>{"name": "get_time"}</tool_call>')
    assert parsed == Parsed(content='<tool_call>{"name"', calls=[Call("get_time", "{}", closed=True)])


def test_a_name_without_an_end_is_given_up_and_a_call_behind_it_is_found() -> None:
    endless = "<function=" + "a" * 300
    call = "<tool_call><function=get_time></function></tool_call>"
    parser = parser_for(OutputFormat(tools="qwen3_coder"), TOOLS)
    assert parser is not None
    assert read(parser, [endless + call]) == Parsed(content=endless, calls=[Call("get_time", "{}", closed=True)])


def test_a_fault_inside_the_arguments_leaves_the_call_open_and_loses_nothing() -> None:
    parsed = parsed_by("hermes", '<tool_call>{"name": "get_time", "arguments": {"a": 1, b}}</tool_call> So.')
    assert parsed == Parsed(content="b}}</tool_call> So.", calls=[Call("get_time", '{"a": 1, ', closed=False)])


def test_a_fault_inside_python_arguments_leaves_the_call_open_and_loses_nothing() -> None:
    parsed = parsed_by("llama_pythonic", "[get_time(a=1, b=open('x'))]")
    assert parsed == Parsed(content="open('x'))]", calls=[Call("get_time", '{"a": 1, "b": ', closed=False)])


@pytest.mark.parametrize(
    "literal",
    [
        "__import__('os')",
        "1+1",
        "f'{x}'",
        "{1: 2}",
        "1e999j",
        "nan",
        "lambda: 0",
        "0x" + "f" * 5_000,
        "-" * 5_000 + "1",
        "'" + "a" * 100_000 + "'",
        "[" + "1," * 5_000 + "]",
    ],
)
def test_python_that_is_no_plain_literal_is_never_a_complete_call(literal: str) -> None:
    (call,) = parsed_by("llama_pythonic", f"[get_time(a={literal})]").calls
    assert not call.closed


def test_deep_nesting_does_no_harm() -> None:
    depth = 5_000
    nested = "[" * depth + "]" * depth
    json_call = parsed_by("hermes", f'<tool_call>{{"name": "get_time", "arguments": {{"a": {nested}}}}}</tool_call>')
    assert json_call.calls == [Call("get_time", f'{{"a": {nested}}}', closed=True)]
    python_call = parsed_by("llama_pythonic", f"[get_time(a={nested})]")
    assert python_call.calls == [Call("get_time", '{"a": ', closed=False)]
    (xml_call,) = parsed_by("qwen3_coder", f"<function=get_time><parameter=a>{nested}</parameter></function>").calls
    # Whether it is read as JSON or as a string depends on Python's recursion limit.
    assert xml_call.arguments in (f'{{"a": {nested}}}', json.dumps({"a": nested}))


@pytest.mark.parametrize("tools", TOOL_FORMATS)
def test_a_schema_of_any_kind_does_no_harm(tools: ToolFormatName) -> None:
    for schema in ("", "7", "not JSON", '{"properties": 3}', '{"properties": {"a": {"type": 1, "anyOf": [true]}}}'):
        tool = Tool(name="f", parameters=schema)
        parser = parser_for(OutputFormat(tools=tools), [tool])
        assert parser is not None
        parsed = read(parser, "<tool_call><function=f><parameter=a>1</parameter></function></tool_call>")
        assert parsed.calls or parsed.content
