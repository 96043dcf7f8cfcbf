"""The rules for strict schemas, with the messages of OpenAI's service."""

from typing import Any

import pytest
from openai.lib._pydantic import to_strict_json_schema
from pydantic import BaseModel

from api.dialects.base.strict_schema import MAX_NESTING, MAX_PROPERTIES, strict_error

TEXT = {"type": "string"}


def strict(**properties: Any) -> dict[str, Any]:
    """A strict object with these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = strict(a=TEXT)
    for _ in range(levels - 2):
        schema = strict(a=schema)
    return schema


@pytest.mark.parametrize(
    "schema",
    [
        strict(),
        strict(a=TEXT, b={"type": "array", "items": strict(c={"enum": [1, "x"]})}),
        strict(a={"anyOf": [TEXT, {"type": "null"}]}, b={"type": ["integer", "null"], "minimum": 0}),
        strict(a={"$ref": "#/$defs/d"}) | {"$defs": {"d": strict(a={"$ref": "#"})}},
        strict(default=TEXT, oneOf=TEXT),
        nested(MAX_NESTING),
    ],
)
def test_a_strict_schema(schema: dict[str, Any]) -> None:
    assert strict_error(schema) is None


@pytest.mark.parametrize(
    ("schema", "error"),
    [
        ({}, "schema must have a 'type' key."),
        (
            {"type": "array", "items": TEXT},
            "schema must be a JSON Schema of 'type: \"object\"', got 'type: \"array\"'.",
        ),
        ({"properties": {}}, "schema must be a JSON Schema of 'type: \"object\"', got 'type: \"None\"'."),
        ({"type": "object"} | {"anyOf": []}, "must have type 'object' and not have 'anyOf' at the top level."),
        (
            {"type": "object", "properties": {}},
            "In context=(), 'additionalProperties' is required to be supplied and to be false.",
        ),
        (
            strict(a=strict() | {"additionalProperties": True}),
            "In context=('properties', 'a'), 'additionalProperties' is required",
        ),
        (
            strict(a=TEXT, b=TEXT) | {"required": ["a"]},
            "In context=(), 'required' is required to be supplied and to be an array including every key in "
            "properties. Missing 'b'.",
        ),
        (strict(a=TEXT) | {"required": "a"}, "Missing 'a'."),
        (strict() | {"required": ["a"]}, "'required' holds the key 'a'"),
        (strict() | {"required": [["a"]]}, "'required' holds the key '['a']'"),
        (strict(a={}), "In context=('properties', 'a'), schema must have a 'type' key."),
        (strict(a={"type": "array"}), "In context=('properties', 'a'), array schema missing items."),
        (strict(a={"oneOf": [TEXT]}), "In context=('properties', 'a'), 'oneOf' is not permitted."),
        (
            strict(a={"type": "array", "items": TEXT | {"default": ""}}),
            "In context=('properties', 'a', 'items'), 'default' is not permitted.",
        ),
        (strict(a={"anyOf": [TEXT, {"not": TEXT}]}), "In context=('properties', 'a', 'anyOf', '1'), 'not' is not"),
        (strict() | {"$defs": {"d": {"type": "object"}}}, "In context=('$defs', 'd'), 'additionalProperties'"),
        (nested(MAX_NESTING + 1), f"more than {MAX_NESTING} levels of nesting."),
        (strict(**{f"p{number}": TEXT for number in range(MAX_PROPERTIES + 1)}), f"at most {MAX_PROPERTIES} object"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_what_is_not_strict(schema: dict[str, Any], error: str) -> None:
    assert error in (strict_error(schema) or "")


class Step(BaseModel):
    """A nested type."""

    explanation: str
    output: float | None


class Solution(BaseModel):
    """What ``.parse()`` is asked for."""

    steps: list[Step]
    last: Step


def test_what_the_sdk_makes_of_a_type_is_strict() -> None:
    assert strict_error(to_strict_json_schema(Solution)) is None
