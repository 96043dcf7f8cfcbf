"""Arguments of any shape keep their value on the way through each notation."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shared.parsers import parser_for
from shared.parsers.formats import OutputFormat
from shared.protocol.request import Tool
from tests.unit.shared.parsers.reading import read
from tests.unit.shared.parsers.transcript import TOOLS

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
NAMES = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)


@given(st.dictionaries(TEXT, VALUES, max_size=4), st.booleans())
def test_json_arguments_are_passed_on_unchanged(arguments: dict[str, Any], spaced: bool) -> None:
    text = json.dumps(arguments, ensure_ascii=spaced, indent=2 if spaced else None)
    parser = parser_for(OutputFormat(tools="hermes"), TOOLS)
    assert parser is not None
    (call,) = read(parser, f'<tool_call>{{"name": "get_time", "arguments": {text}}}</tool_call>').calls
    assert call.arguments == text


@given(st.dictionaries(NAMES, VALUES, min_size=1, max_size=4))
def test_python_arguments_become_the_same_values_in_json(arguments: dict[str, Any]) -> None:
    text = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
    parser = parser_for(OutputFormat(tools="llama_pythonic"), TOOLS)
    assert parser is not None
    (call,) = read(parser, f"[get_time({text})]").calls
    assert call.closed
    assert json.loads(call.arguments) == arguments


@given(st.dictionaries(NAMES, TEXT.filter(lambda text: "</parameter>" not in text), max_size=4))
def test_xml_values_that_the_schema_calls_strings_stay_strings(arguments: dict[str, str]) -> None:
    tool = Tool(name="f", parameters=json.dumps({"properties": {key: {"type": "string"} for key in arguments}}))
    elements = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
    parser = parser_for(OutputFormat(tools="qwen3_coder"), [tool])
    assert parser is not None
    (call,) = read(parser, f"<tool_call>\n<function=f>\n{elements}</function>\n</tool_call>").calls
    assert json.loads(call.arguments) == arguments
