"""Arguments of tools that a model writes as XML."""

import json
from typing import Any, cast

import pytest

from shared.parsers import parser_for
from shared.parsers.format import Elements
from shared.parsers.formats import TOOL_FORMATS, OutputFormat
from shared.parsers.schema_types import ANY_TYPE, SchemaTypes
from shared.protocol.errors import RequestRefused
from shared.protocol.request import Tool
from tests.support.grammar_oracle import Texts, tiny_oracle
from tests.unit.shared.parsers.reading import read
from worker.engine.protocol import OutputGrammar
from worker.grammar.calls import CallableTool, element_arguments, required_calls
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


STRINGS = [
    ({"type": "string", "pattern": "^[A-Z]{2}[0-9]+$"}, ["AB12"], ["ab12", "AB", "AB1\n"]),
    ({"type": "string", "pattern": "b+c"}, ["bc", "a < bbc", "<b bc"], ["ac", "bbc</"]),
    ({"type": "string", "pattern": "^.*$"}, ["a b"], ["a\nb"]),
    ({"type": "string", "format": "date"}, ["2026-01-31"], ["tomorrow", "2026-13-01"]),
    ({"type": "string", "minLength": 2}, ["ab", "ab <b>"], ["", "a"]),
    ({"type": ["string", "null"], "pattern": "^x"}, ["x", "null"], ["y", "nul"]),
    ({"anyOf": [{"type": "string", "pattern": "^x"}, {"type": "array"}]}, ["xy", '["y"]'], ["y"]),
    ({"allOf": [{"$ref": "#/$defs/Code"}], "minLength": 2}, ["A1"], ["A", "a1"]),
]


def _calls(name: str, schema: Any, *, strict: bool) -> str:
    parameters = {"type": "object", "properties": {"a": schema}, "required": ["a"], "additionalProperties": False}
    parameters["$defs"] = {"Code": {"type": "string", "pattern": "^[A-Z][0-9]$"}}
    tool = Tool(name="f", parameters=json.dumps(parameters), strict=strict)
    part: Any = required_calls(TOOL_FORMATS[name].shape, [CallableTool(tool, 0)], parallel=False)
    while "grammar" not in part:
        part = part["content"]
    return str(part["grammar"])


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("qwen3_coder", "<parameter=a>\n", "\n</parameter>\n"),
        ("minimax_m3", "]<]minimax[>[<a>", "]<]minimax[>[</a>"),
    ],
)
@pytest.mark.parametrize(("schema", "right", "wrong"), STRINGS)
def test_the_keywords_of_strings_are_enforced(
    name: str, before: str, after: str, strict: bool, schema: Any, right: list[str], wrong: list[str]
) -> None:
    texts = Texts(_calls(name, schema, strict=strict))
    if name == "minimax_m3" and "anyOf" in schema:
        right = right[:1]  # Its arrays are elements.
    assert all(f"{before}{text}{after}" in texts for text in right)
    # The end of one family is text in another.
    assert not any(f"{before}{text}{after}" in texts for text in wrong if "</" not in text or name == "qwen3_coder")


def test_lengths_that_a_grammar_counts_are_enforced_if_strict() -> None:
    schema = {"type": "string", "minLength": 1, "maxLength": 3}
    texts = Texts(_calls("qwen3_coder", schema, strict=True))
    allowed = [text for text in ("", "a", "abc", "abcd") if f"<parameter=a>\n{text}\n</parameter>\n" in texts]
    assert allowed == ["a", "abc"]


@pytest.mark.parametrize("name", ["qwen3_coder", "minimax_m3"])
@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"type": "string", "maxLength": 100}, "maxLength"),
        ({"type": "string", "minLength": 100}, "minLength"),
        ({"type": "string", "pattern": "^<b>$", "minLength": 1}, "pattern"),
        ({"type": "string", "pattern": "^]b$"}, "pattern"),
        ({"type": "string", "pattern": "^.{1,200}$"}, "pattern"),
        ({"type": "string", "pattern": "x", "maxLength": 5}, "maxLength"),
    ],
)
def test_a_keyword_of_strings_that_bare_text_cannot_hold_is_refused_if_strict(
    name: str, schema: Any, keyword: str
) -> None:
    sign = {"^<b>$": "qwen3_coder", "^]b$": "minimax_m3"}.get(schema.get("pattern", ""), name)
    if sign == name:
        with pytest.raises(RequestRefused, match=rf"function 'f'.*{keyword}"):
            _calls(name, schema, strict=True)
    assert _calls(name, schema, strict=False)


def test_types_are_found_in_time_linear_in_the_schema() -> None:
    levels = {f"L{level}": {"anyOf": 2 * [{"$ref": f"#/$defs/L{level + 1}"}]} for level in range(1000)}
    document = {"$defs": {**levels, "L1000": {"enum": ["a"]}}}
    for start in (0, 980):
        types = SchemaTypes(document)
        assert types.types({"$ref": f"#/$defs/L{start}"}) == ({"string"} if start else ANY_TYPE)
        assert types.options({"$ref": f"#/$defs/L{start}"}) == ({b'"a"': "a"} if start else None)
