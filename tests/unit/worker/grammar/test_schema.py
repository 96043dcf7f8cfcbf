"""JSON Schema as grammars: which texts they make, and which schemas are refused, where and why."""

import json
import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.grammar_oracle import Texts
from tests.support.paths import ROOT
from worker.grammar.schema.compiler import schema_grammar
from worker.grammar.schema.flat import ASSERTIONS
from worker.grammar.schema.keywords import FORMATS, UNSUPPORTED, SchemaError, UnsupportedKeyword

PAIR = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "null"}}, "required": ["a"]}
TREE = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"v": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}},
            "required": ["v"],
        }
    },
}
OPTIONAL = {"properties": {"a": {"const": 1}, "b": {"const": 2}, "c": {"const": 3}}}


@pytest.mark.parametrize(
    ("schema", "made", "not_made"),
    [
        (PAIR, ['{"a":1}', '{"a": -20, "b":null}'], ['{"b":null}', '{"a":1,}', '{"a":  1}', '{"a":1,"c":1}', "{}"]),
        (OPTIONAL, ["{}", '{"b":2}', '{"a":1,"c":3}', '{"a":1, "b":2, "c":3}'], ['{"c":3,"a":1}', "{,}", '{"a":2}']),
        ({"type": "object"}, ["{}", '{"x":[1,{"y":"z"}],"":true}'], ["[]", '{"x"}', "{ }"]),
        (
            {"required": ["a"], "properties": {"a": {"items": {"additionalProperties": {"const": 1}}}}},
            ['{ "a": [ { "b": 1, "c":1 },{}] }', '{"a":[]}', '{"a":[{ "b":1}]}'],
            ['{  "a":1}', '{"a":1  }', '{\n"a":1}', '{"a":[ ]}', '{"a":{ }}', '{"a" :1}', '{"a":1 ,"b":1}', ' {"a":1}'],
        ),
        ({"type": "object", "minProperties": 1}, ['{"x":{}}', '{ "x": 1 }'], ["{}", "{ }"]),
        ({**PAIR, "additionalProperties": False}, ['{"a":0}'], ['{"a":0,"x":1}']),
        (
            {"properties": {"ab": {}}, "additionalProperties": {"type": "null"}},
            ['{"ab":1}', '{"ab":1,"b":null,"":null}', '{"b":null}'],
            ['{"b":1}', '{"ab":1,"ab":null}'],
        ),
        ({"type": "object", "required": ["x"]}, ['{"x":[]}', '{"x":1,"y":2}'], ["{}", '{"y":2}']),
        (
            {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 1},
            ["{}", '{"k":1}'],
            ['{"k":1,"l":2}'],
        ),
        ({"type": "array", "items": {"const": 7}, "minItems": 1, "maxItems": 2}, ["[7]", "[7, 7]"], ["[]", "[7,7,7]"]),
        ({"prefixItems": [{"const": 1}, {"const": 2}], "items": False}, ["[1,2]"], ["[1]", "[1,2,3]"]),
        ({"prefixItems": [{"const": 1}], "items": {"const": 2}, "minItems": 2}, ["[1,2]", "[1,2,2]"], ["[1]", "[2]"]),
        ({"items": [{"const": 1}], "additionalItems": {"const": 2}}, ["[1]", "[1,2,2]"], ["[1,1]"]),
        ({"type": "array", "maxItems": 0}, ["[]"], ["[1]"]),
        ({"type": "string"}, ['""', '"é\\n\\u00e9\\ud83d\\ude00"'], ['"\n"', '"\\ud83d"', "x", '"\\x"']),
        ({"type": "string", "minLength": 2}, ['"ab"', '"한국"', '"ab\\n\\n"'], ['"a"', '"한"', '"😀"', '""']),
        ({"type": "string", "pattern": "^a+$"}, ['"aa"'], ['"ab"', '""']),
        ({"type": "string", "pattern": "b"}, ['"abc"', '"b"'], ['"ac"']),
        ({"type": "string", "pattern": '^["\\\\]$'}, ['"\\""', '"\\\\"'], ['"""', '"\\"']),
        ({"type": "string", "format": "date"}, ['"2024-12-31"'], ['"2024-02-30"', '"2024-13-01"']),
        ({"type": "string", "format": "ipv4", "maxLength": 15}, ['"192.168.0.1"'], ['"256.0.0.1"']),
        ({"format": "date", "pattern": "^2024-0[1-6]-\\d\\d$"}, ['"2024-06-30"'], ['"2024-07-01"', '"2023-01-01"']),
        ({"type": "string", "format": "nanoid", "pattern": "^[a-z]{3}$"}, ['"abc"'], ['"ab"', '"ABC"']),
        ({"type": ["integer", "null"]}, ["12", "null"], ["1.5", "true", "012"]),
        ({"type": "number"}, ["-0.5", "1e9", "3"], [".5", "1.", "+1"]),
        ({"type": "boolean"}, ["true", "false"], ["True"]),
        ({"enum": ["a", 1, None, {"k": [1]}]}, ['"a"', "1", "null", '{"k":[1]}'], ["a", "2"]),
        ({"enum": ["a", 1], "type": "string"}, ['"a"'], ["1"]),
        (TREE, ['{"v":1}', '{"v":1,"next":{"v":2,"next":{"v":3}}}'], ['{"v":1,"next":null}']),
        ({"anyOf": [{"const": 1}, {"type": "null"}]}, ["1", "null"], ["2"]),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, ['"x"', "1"], ["1.5"]),
        (
            {"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}},
             "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
            ['{"a":1}', '{"b":2}', '{"a":1,"b":2}'],
            ["{}"],
        ),
        ({"allOf": [{"minimum": 1}, {"maximum": 3, "type": "integer"}]}, ["1", "3"], ["0", "4"]),
        ({"allOf": [PAIR, {"properties": {"c": {"const": 0}}, "required": ["c"]}]}, ['{"a":1,"c":0}'], ['{"a":1}']),
        ({"$ref": "#/$defs/n", "maximum": 5, "$defs": {"n": {"type": "integer", "minimum": 4}}}, ["4", "5"], ["6"]),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"const": 1}}}, ["1"], ["2"]),
        (
            {"type": "object", "patternProperties": {"^x-": {"const": 1}}, "additionalProperties": False},
            ["{}", '{"x-a":1,"x-b":1}'],
            ['{"a":1}', '{"x-a":2}'],
        ),
        (
            {
                "properties": {"xa": {"const": 2}},
                "patternProperties": {"^[xy]": {}},
                "additionalProperties": {"const": 3},
            },
            ['{"xa":2,"b":3}', '{"y":1}'],
            ['{"xa":2,"xa":1}', '{"b":1}'],
        ),
        ({"patternProperties": {"^(?!a)[a-c]$": {"const": 1}}}, ['{"b":1}'], ['{"a":1}', '{"b":2}']),
        (
            {"propertyNames": {"enum": ["a", "b"]}, "additionalProperties": {"const": 1}},
            ['{"b":1}', '{"a":1,"b":1}'],
            ['{"c":1}', '{"a":1,"a":1}'],
        ),
        ({"propertyNames": {"pattern": "^[a-c]+$"}, "type": "object"}, ['{"ab":[]}'], ['{"d":1}', '{"":1}']),
        ({**OPTIONAL, "minProperties": 2}, ['{"a":1,"c":3}', '{"b":2,"c":3}'], ["{}", '{"a":1}']),
        ({**OPTIONAL, "maxProperties": 1}, ["{}", '{"b":2}'], ['{"a":1,"c":3}']),
        ({"type": "integer", "multipleOf": 25}, ["0", "-25", "175"], ["5", "26", "12"]),
        ({"type": "integer", "multipleOf": 7, "minimum": 8, "maximum": 30}, ["14", "28"], ["7", "15", "35"]),
        ({"type": "number", "multipleOf": 0.01}, ["1.25", "-3"], ["1.255"]),
        ({"type": "number", "multipleOf": 1, "minimum": 0.5, "maximum": 1000}, ["1", "1000"], ["0", "2.5"]),
        ({"items": {"enum": [1, 2, 3]}, "uniqueItems": True, "minItems": 1}, ["[1,3]"], ["[]", "[1,1]", "[3,1]"]),
        ({**OPTIONAL, "dependentRequired": {"a": ["c"]}}, ['{"b":2}', '{"a":1,"c":3}'], ['{"a":1}', '{"a":1,"b":2}']),
        ({**OPTIONAL, "not": {"required": ["a", "b"]}}, ['{"a":1}', '{"b":2,"c":3}'], ['{"a":1,"b":2}']),
        (
            {
                "properties": {"k": {"enum": ["p", "q"]}, "v": {"type": "boolean"}},
                "required": ["k"],
                "if": {"properties": {"k": {"const": "p"}}},
                "then": {"required": ["v"]},
                "else": {"properties": {"v": False}},
            },
            ['{"k":"p","v":true}', '{"k":"q"}'],
            ['{"k":"p"}', '{"k":"q","v":true}'],
        ),
        ({"type": "array", "contains": {"const": 1}, "items": {"enum": [1, 2]}}, ["[1,2]"], ["[]", "[2,2]"]),
        ({"allOf": [{"contains": {"const": 1}}], "unevaluatedItems": False, "type": "array"}, ["[1]"], ["[1,2]"]),
        ({"patternProperties": {"^a": {"enum": [1, 2]}, "b$": {"enum": [2, 3]}}}, ['{"ab":2,"b":3}'], ['{"ab":1}']),
        ({"patternProperties": {"^a": {}, "b$": False}}, ["{}"], ['{"ab":1}']),
        ({"patternProperties": {"^a": {}}, "propertyNames": {"type": "null"}}, ["{}"], ['{"a":1}']),
        ({"patternProperties": {"^(?!a)": {}}, "properties": {"": {"const": 1}}}, ['{"":1}', '{"b":2}'], ['{"":2}']),
        (
            {"patternProperties": {"^(?!a)": {"type": "boolean"}}, "additionalProperties": {"enum": [True, 2]},
             "required": ["a"]},
            ['{"a":true}'],
            ['{"a":false}', '{"a":2}'],
        ),
        ({"allOf": [{"enum": [True, 2]}, {"enum": [1, 2]}]}, ["2"], ["1", "true"]),
        ({"enum": ["a", 1, 2, 3.5], "minimum": 1, "exclusiveMinimum": True, "maximum": 3}, ['"a"', "2"], ["1", "3.5"]),
        ({"oneOf": [{"enum": [1, 5]}, {"not": {"enum": [1, 2]}}]}, ["1", "0"], ["5", "2"]),
        ({"type": ["integer", "string"], "not": {"const": 1.0}}, ['"a"', "0", "2"], ["1"]),
        ({"type": "integer", "not": {"enum": [3, 0]}}, ["-1", "1", "2", "4", "30"], ["0", "3", "-0"]),
        ({"type": "number", "minimum": 0, "not": {"const": 0}}, ["0.5", "1", "10"], ["0", "0.0", "-1"]),
        ({"oneOf": [{"enum": [1.5]}, {"not": {"type": "integer"}}]}, ['"a"'], ["1.5"]),
        ({"type": "number", "exclusiveMaximum": 1000}, ["999.99"], ["999.9999999999999999"]),
        ({"type": "number", "exclusiveMinimum": 1000}, ["1000.01"], ["1000.0000000000000001"]),
        ({**OPTIONAL, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, ['{"a":1}'], ["{}", '{"a":1,"b":2}']),
        ({"title": "T", "x-own": {"not": 1}, "const": 1}, ["1"], ["2"]),
        (True, ["1", "[[]]", '"x"'], ["", "[ ]"]),
    ],
)  # fmt: skip
def test_a_grammar_makes_valid_and_compact_texts_only(schema: Any, made: list[str], not_made: list[str]) -> None:
    texts = Texts(schema_grammar(json.dumps(schema)))
    assert [text for text in made if text not in texts] == []
    assert [text for text in not_made if text in texts] == []


@pytest.mark.parametrize(
    ("schema", "made", "not_made"),
    [
        (
            {
                "$ref": "#/$defs/bar",
                "properties": {"foo": {"const": 1}},
                "unevaluatedProperties": False,
                "$defs": {"bar": {"properties": {"bar": {"const": 2}}}},
            },
            ['{"foo":1,"bar":2}'],
            ['{"baz":1}'],
        ),
        (
            {
                "properties": {"foo": {"const": 1}},
                "$ref": "#/$defs/bar",
                "$defs": {"bar": {"properties": {"bar": {"const": 2}}, "unevaluatedProperties": False}},
            },
            ['{"bar":2}'],
            ['{"foo":1}', '{"foo":1,"bar":2}'],
        ),
        (
            {"allOf": [{"properties": {"foo": {"const": 1}}, "unevaluatedProperties": False},
                       {"properties": {"bar": {"const": 2}}}]},
            ['{"foo":1}'],
            ['{"foo":1,"bar":2}', '{"bar":2}'],
        ),
        (
            {"anyOf": [{"properties": {"foo": {"const": 1}}, "unevaluatedProperties": False}],
             "properties": {"bar": {"const": 2}}},
            ['{"foo":1}', "{}"],
            ['{"foo":1,"bar":2}', '{"bar":2}'],
        ),
    ],
)  # fmt: skip
def test_unevaluated_properties_are_those_of_their_own_schema(
    schema: Any, made: list[str], not_made: list[str]
) -> None:
    texts = Texts(schema_grammar(json.dumps({"type": "object", **schema})))
    assert [text for text in made if text not in texts] == []
    assert [text for text in not_made if text in texts] == []


@pytest.mark.parametrize("keyword", sorted(UNSUPPORTED))
def test_each_keyword_that_cannot_be_held_is_refused_by_name_and_place(keyword: str) -> None:
    schema = {"type": "object", "properties": {"a/b": {keyword: {"type": "string"}}}}
    with pytest.raises(UnsupportedKeyword) as refusal:
        schema_grammar(json.dumps(schema))
    assert refusal.value.path == f"/properties/a~1b/{keyword}"
    assert f"'{keyword}'" in str(refusal.value)


def test_the_documentation_names_every_keyword_and_format() -> None:
    page = (ROOT / "docs" / "json-schema.md").read_text()
    enforced, refused = page.split("## Refused keywords")
    assert set(re.findall(r"`(\$?\w+)`", refused.split("##")[0])) == set(UNSUPPORTED)
    assert ASSERTIONS | set(FORMATS) <= set(re.findall(r"`(\$?[\w-]+)`", enforced))


def test_no_keyword_is_both_held_and_refused() -> None:
    assert not ASSERTIONS & set(UNSUPPORTED)


@pytest.mark.parametrize("keyword", sorted(UNSUPPORTED))
def test_a_schema_that_need_not_be_strict_is_held_without_them(keyword: str) -> None:
    texts = Texts(schema_grammar(json.dumps({"type": "integer", keyword: {"type": "string"}}), strict=False))
    assert "1" in texts
    assert '"x"' not in texts


@pytest.mark.parametrize(
    ("schema", "path", "said"),
    [
        ({"type": "any"}, "/type", "'any'"),
        ({"type": []}, "/type", "expected"),
        ({"properties": 3}, "/properties", "object"),
        ({"required": "a", "type": "object"}, "/required", "array"),
        ({"required": [1], "type": "object"}, "/required", "`str`"),
        ({"type": "array", "items": 3}, "/items", "a schema is"),
        ({"items": False, "minItems": 1}, "/minItems", "more than"),
        ({"type": "string", "minLength": -1}, "/minLength", ">= 0"),
        ({"type": "string", "minLength": 3, "maxLength": 2}, "/maxLength", "less than"),
        ({"type": "string", "pattern": "("}, "/pattern", "not closed"),
        ({"type": "string", "pattern": "(?=a)"}, "/pattern", "look ahead"),
        ({"type": "string", "pattern": "a", "minLength": 3}, "/minLength", "pattern"),
        ({"type": "string", "format": []}, "/format", "`str`"),
        ({"type": "integer", "minimum": 5, "maximum": 4}, "", "no number"),
        ({"type": "integer", "minimum": "5"}, "/minimum", "float"),
        ({"type": "integer", "multipleOf": 3}, "/multipleOf", "multipleOf"),
        ({"not": {"pattern": "a"}}, "/not", "'pattern'"),
        ({"not": {}}, "", "no value"),
        ({"type": "object", "patternProperties": {"a": {}, "a+": {}}}, "/patternProperties/a+", "first character"),
        ({"anyOf": [{"dependentRequired": {f"{n}": ["x"] for n in range(9)}}]}, "/anyOf/0", "64 cases"),
        ({"enum": []}, "", "no value"),
        ({"anyOf": []}, "/anyOf", "no schemas"),
        ({"anyOf": [False, {"enum": []}]}, "/anyOf/0", "no value"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "/oneOf", "anyOf"),
        ({"oneOf": [{"minItems": 2}, {"contains": {"const": 1}, "maxContains": 1}]}, "/oneOf", "fit both"),
        ({"not": {"not": {"maxLength": 3}}}, "/not", "'not'"),
        ({"allOf": [{"properties": 3}, {"additionalProperties": False}]}, "/allOf/0/properties", "object"),
        ({"allOf": [{"properties": [[]]}, {"additionalProperties": False}]}, "/allOf/0/properties", "object"),
        ({"allOf": [{"pattern": "a"}, {"pattern": "b"}]}, "", "pattern"),
        ({"$ref": "#"}, "", "refers to itself"),
        ({"$ref": "#/a", "a": {"anyOf": [{"$ref": "#/b"}]}, "b": {"$ref": "#/a"}}, "", "refers to itself"),
        ({"allOf": [{"$ref": "#"}]}, "/allOf/0/allOf/0", "refers to itself"),
        ({"$ref": "#/nowhere"}, "/$ref", "nothing at"),
        ({"$ref": "other.json"}, "/$ref", "other.json"),
        ({"minProperties": 3, "properties": {"a": {}, "b": {}}}, "", "minProperties"),
        ({"properties": {f"{n}": {} for n in range(2000)}, "maxProperties": 1999}, "/maxProperties", "too large"),
        ({"items": {"enum": list(range(9000))}, "uniqueItems": True, "maxItems": 4000}, "/maxItems", "too large"),
        ({"type": "string", "minLength": 10**9}, "/minLength", "too large"),
        ({"type": "string", "pattern": "^.{999999,}$"}, "/pattern", "at most 200"),
        ({"items": {"$id": "b", "items": {"$ref": "#/$defs/c"}}, "$defs": {"c": {}}}, "/items/$id", "relative"),
        (3, "", "object"),
        (False, "", "no value"),
    ],
)
def test_a_refusal_says_where_and_why(schema: Any, path: str, said: str) -> None:
    with pytest.raises(SchemaError) as refusal:
        schema_grammar(json.dumps(schema))
    assert refusal.value.path == path
    assert said in str(refusal.value)


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(SchemaError, match="JSON"):
        schema_grammar("{")


def test_a_schema_that_is_nested_too_deep_is_refused() -> None:
    schema: Any = {"const": 1}
    for _ in range(70):
        schema = {"type": "array", "items": schema}
    with pytest.raises(SchemaError, match="64 deep"):
        schema_grammar(json.dumps(schema))


def test_a_small_schema_that_unfolds_to_a_huge_one_is_refused() -> None:
    definitions = {f"d{level}": {"allOf": [{"$ref": f"#/d{level + 1}"}] * 2} for level in range(30)}
    with pytest.raises(SchemaError, match="too large"):
        schema_grammar(json.dumps({"allOf": [{"$ref": "#/d0"}], **definitions, "d30": {"const": 1}}))


@pytest.mark.parametrize(
    "schema",
    [
        {"patternProperties": {f"^{letter}.*{index}y*$": {} for index in range(100) for letter in "abcd"}},
        {
            "properties": {f"name{index}": {} for index in range(1000)},
            "patternProperties": {f"^q{index}": {} for index in range(30)},
        },
        {"type": "object", "oneOf": [{"required": [f"p{index}"]} for index in range(200)]},
    ],
)
def test_a_schema_whose_parts_are_compared_too_often_is_refused(schema: Any) -> None:
    with pytest.raises(SchemaError, match="too large"):
        schema_grammar(json.dumps(schema))


_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats(-2, 2)
    | st.sampled_from(["string", "integer", "a", "#", "#/x", "("]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*sorted(ASSERTIONS), "x", "not"]), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(schema=_values, strict=st.booleans())
def test_no_schema_however_odd_fails_in_another_way(schema: Any, strict: bool) -> None:
    with suppress(SchemaError):
        assert schema_grammar(json.dumps(schema), strict=strict).startswith("root ::= ")


def test_a_grammar_that_counts_refuses_a_limit_that_the_pattern_does_not_imply() -> None:
    schema = json.dumps({"type": "string", "pattern": "^[a-z]+$", "maxLength": 3})
    with pytest.raises(SchemaError) as refusal:
        schema_grammar(schema, lengths=False)
    assert refusal.value.path == "/maxLength"
    assert '"abc"' in Texts(schema_grammar(schema))


@pytest.mark.parametrize("form", ["path", "binary", "password", "colour"])
def test_a_format_without_an_expression_is_an_annotation(form: str) -> None:
    """pydantic gives these to ``Path``, ``bytes`` and ``SecretStr``, and the SDKs always send strict schemas."""
    assert schema_grammar(json.dumps({"type": "string", "format": form})) == schema_grammar('{"type": "string"}')
