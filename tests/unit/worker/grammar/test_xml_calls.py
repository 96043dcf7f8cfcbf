"""Arguments of tools that a model writes as XML."""

import json
from typing import Any, cast

import pytest

from shared.parsers import parser_for
from shared.parsers.format import Elements
from shared.parsers.formats import TOOL_FORMATS, OutputFormat
from shared.parsers.schema_types import ANY_TYPE, SchemaTypes
from shared.protocol.request import Tool
from tests.support.grammar_oracle import Texts, tiny_oracle
from tests.unit.shared.parsers.reading import read
from worker.engine.protocol import OutputGrammar
from worker.grammar.calls import element_arguments
from worker.grammar.ebnf import Rules

QWEN = cast("Elements", TOOL_FORMATS["qwen3_coder"].shape.elements)
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
GRAMMAR = Rules().text(element_arguments(Rules(), SCHEMA, QWEN))


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("", True),
        ("a < b, <b> and <<c>>", True),
        ("größe 한 </", False),
        ("x</parameter>\n<parameter=b>\ny", False),
        ("x<</parameter>\n<parameter=b>\ny", False),
    ],
)
def test_a_string_has_no_end_tag_inside(text: str, allowed: bool) -> None:
    assert (f"<parameter=a>\n{text}\n</parameter>\n" in Texts(GRAMMAR)) == allowed


def test_a_string_is_utf8() -> None:
    for seed in range(10):
        tiny_oracle().random(OutputGrammar(GRAMMAR), seed)  # raises an error if it is not UTF-8


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": ["string", "null"]}, "Paris", "Paris"),
        ({"type": ["string", "null"]}, "null", None),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "Paris", "Paris"),
        ({"$ref": "#/$defs/City"}, "Paris", "Paris"),
        ({"$ref": "#/$defs/City"}, "5", "5"),
        ({"allOf": [{"$ref": "#/$defs/City"}], "description": "A city."}, "Paris", "Paris"),
        ({"allOf": [{"type": ["string", "integer"]}, {"type": "string"}]}, "5", "5"),
        ({"minLength": 1}, "5", "5"),
        ({}, "Paris", "Paris"),
        ({}, '{"a": 1}', {"a": 1}),
        ({"description": "Any value"}, "Paris", "Paris"),
        (True, "Paris", "Paris"),
        ({"enum": ["5"]}, "5", "5"),
        ({"const": "5"}, "5", "5"),
        ({"$ref": "#/$defs/Colour"}, "red", "red"),
        ({"anyOf": [{"$ref": "#/$defs/Colour"}, {"type": "null"}]}, "null", None),
        ({"$ref": "#/$defs/Itself"}, "Paris", "Paris"),
        ({"$ref": "#/$defs/Missing"}, "Paris", "Paris"),
        ({"type": "integer"}, "5", 5),
        ({"type": "array", "items": {"type": "string"}}, '["Paris"]', ["Paris"]),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "null", None),
    ],
)
def test_what_the_grammar_allows_is_what_the_parser_reads(schema: Any, text: str, value: Any) -> None:
    parameters = {
        "type": "object",
        "properties": {"a": schema},
        "required": ["a"],
        "$defs": {
            "City": {"type": "string", "title": "City"},
            "Colour": {"type": "string", "enum": ["red", "green"]},
            "Itself": {"anyOf": [{"$ref": "#/$defs/Itself"}, {"type": "string"}]},
        },
    }
    rules = Rules()
    arguments = f"<parameter=a>\n{text}\n</parameter>\n"
    assert arguments in Texts(rules.text(element_arguments(rules, parameters, QWEN)))
    parser = parser_for(OutputFormat(tools="qwen3_coder"), [Tool(name="f", parameters=json.dumps(parameters))])
    assert parser is not None
    (call,) = read(parser, f"<tool_call>\n<function=f>\n{arguments}</function>\n</tool_call>").calls
    assert json.loads(call.arguments) == {"a": value}


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"$ref": "#/$defs/Colour"}, "blue"),
        ({"anyOf": [{"$ref": "#/$defs/Colour"}, {"type": "null"}]}, "blue"),
        ({"type": "integer"}, "Paris"),
        ({"properties": {"b": {"type": "string"}}}, "Paris"),
    ],
)
def test_enumerated_values_and_other_types_are_enforced(schema: Any, text: str) -> None:
    parameters = {"properties": {"a": schema}, "required": ["a"], "$defs": {"Colour": {"enum": ["red", "green"]}}}
    rules = Rules()
    grammar = rules.text(element_arguments(rules, parameters, QWEN))
    assert f"<parameter=a>\n{text}\n</parameter>\n" not in Texts(grammar)


def test_types_are_found_in_time_linear_in_the_schema() -> None:
    levels = {f"L{level}": {"anyOf": 2 * [{"$ref": f"#/$defs/L{level + 1}"}]} for level in range(1000)}
    document = {"$defs": {**levels, "L1000": {"enum": ["a"]}}}
    for start in (0, 980):
        types = SchemaTypes(document)
        assert types.types({"$ref": f"#/$defs/L{start}"}) == ({"string"} if start else ANY_TYPE)
        assert types.options({"$ref": f"#/$defs/L{start}"}) == ({b'"a"': "a"} if start else None)
