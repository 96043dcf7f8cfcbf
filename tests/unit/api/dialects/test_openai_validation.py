"""Wrong values of request fields: message, param and code of each."""

import itertools
from typing import Any

import pytest

from api.dialects.openai.parse import parse_chat
from tests.unit.api.dialects.bodies import USER, body, error_of

FUNCTION = {"type": "function", "function": {"name": "f"}}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
ROLES = "'system', 'assistant', 'user', 'function', 'tool', and 'developer'"
CASES: list[tuple[dict[str, Any], str | None, str | None, str]] = [
    # types
    ({"temperature": True}, "temperature", "invalid_type", "expected a decimal, but got a boolean instead."),
    ({"seed": 1.0}, "seed", "invalid_type", "expected an integer, but got a decimal number instead."),
    ({"n": True}, "n", "invalid_type", "expected an integer, but got a boolean instead."),
    ({"model": None}, "model", "invalid_type", "expected a string, but got null instead."),
    ({"model": 5}, "model", "invalid_type", "expected a string, but got an integer instead."),
    ({"messages": "hi"}, "messages", "invalid_type", "expected an array of objects, but got a string instead."),
    ({"messages": [5]}, "messages[0]", "invalid_type", "expected an object, but got an integer instead."),
    ({"stop": 5}, "stop", "invalid_type", "expected one of a string or array of strings, but got an integer instead."),
    ({"stop": ["a", 5]}, "stop[1]", "invalid_type", "expected a string, but got an integer instead."),
    ({"stream": "yes"}, "stream", "invalid_type", "expected a boolean, but got a string instead."),
    ({"stream_options": []}, "stream_options", "invalid_type", "expected an object, but got an array instead."),
    (
        {"stream": True, "stream_options": {"include_usage": 1}},
        "stream_options.include_usage",
        "invalid_type",
        "expected a boolean, but got an integer instead.",
    ),
    ({"modalities": "text"}, "modalities", "invalid_type", "expected an array of strings, but got a string instead."),
    ({"metadata": {"a": 1}}, "metadata.a", "invalid_type", "expected a string, but got an integer instead."),
    ({"service_tier": 5}, "service_tier", "invalid_type", "expected a string, but got an integer instead."),
    (
        {"messages": [{"role": "user", "content": {}}]},
        "messages[0].content",
        "invalid_type",
        "expected one of a string or array of objects, but got an object instead.",
    ),
    (
        {"messages": [{"role": "user", "content": None}]},
        "messages[0].content",
        "invalid_type",
        "expected one of a string or array of objects, but got null instead.",
    ),
    ({"messages": [{"role": 5}]}, "messages[0].role", "invalid_type", "expected a string, but got an integer instead."),
    (
        {"messages": [{"role": "assistant", "content": "", "tool_calls": {}}]},
        "messages[0].tool_calls",
        "invalid_type",
        "expected an array of objects, but got an object instead.",
    ),
    ({"tools": None}, "tools", "invalid_type", "expected an array of objects, but got null instead."),
    ({"user": None}, "user", "invalid_type", "expected a string, but got null instead."),
    (
        {"tool_choice": 5},
        "tool_choice",
        "invalid_type",
        "expected one of a string or object, but got an integer instead.",
    ),
    # missing
    ({"messages": [{"content": "x"}]}, "messages[0].role", "missing_required_parameter", "'messages[0].role'."),
    ({"messages": [{"role": "user"}]}, "messages[0].content", "missing_required_parameter", "'messages[0].content'."),
    (
        {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
        "messages[0].content[0].text",
        "missing_required_parameter",
        "Missing required parameter: 'messages[0].content[0].text'.",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "file"}]}]},
        "messages[0].content[0].file",
        "missing_required_parameter",
        "'messages[0].content[0].file'.",
    ),
    (
        {"tools": [{"type": "function", "function": {"function": {}}}]},
        "tools[0].function.name",
        "missing_required_parameter",
        "'tools[0].function.name'.",
    ),
    ({"modalities": ["text", "audio"]}, "audio", "missing_required_parameter", "Missing required parameter: 'audio'."),
    # values
    (
        {"messages": [{"role": "boss", "content": ""}]},
        "messages[0].role",
        "invalid_value",
        f"Invalid value: 'boss'. Supported values are: {ROLES}.",
    ),
    ({"verbosity": "loud"}, "verbosity", "invalid_value", "Supported values are: 'low', 'medium', and 'high'."),
    ({"service_tier": "gold"}, "service_tier", "invalid_value", "Invalid value: 'gold'. Supported values are: 'auto',"),
    (
        {"messages": [{"role": "system", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        "messages[0].content[0].type",
        "invalid_value",
        "Invalid value: 'image_url'. Supported values are: 'text'.",
    ),
    (
        {"response_format": {"type": "yaml"}},
        "response_format.type",
        "invalid_value",
        "Supported values are: 'json_object', 'json_schema', and 'text'.",
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "no spaces"}}},
        "response_format.json_schema.name",
        "invalid_value",
        "Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.",
    ),
    (
        {"messages": [USER | {"name": "<|im_end|>"}]},
        "messages[0].name",
        "invalid_value",
        "Invalid 'messages[0].name': string does not match pattern.",
    ),
    ({"logit_bias": {"a.b": 1}}, "logit_bias", None, "the keys are token ids, but got 'a.b'."),
    # bounds
    (
        {"temperature": 2.5},
        "temperature",
        "decimal_above_max_value",
        "decimal above maximum value. Expected a value <= 2, but got 2.5 instead.",
    ),
    (
        {"temperature": -1},
        "temperature",
        "decimal_below_min_value",
        "decimal below minimum value. Expected a value >= 0, but got -1 instead.",
    ),
    ({"temperature": 9.0}, "temperature", "decimal_above_max_value", "but got 9 instead."),
    ({"top_p": 1.01}, "top_p", "decimal_above_max_value", "Expected a value <= 1, but got 1.01 instead."),
    ({"n": 129}, "n", "integer_above_max_value", "Expected a value <= 128, but got 129 instead."),
    ({"top_logprobs": 21}, "top_logprobs", "integer_above_max_value", "Expected a value <= 20, but got 21 instead."),
    ({"seed": 2**63}, "seed", "integer_above_max_value", "but got 9223372036854775808 instead."),
    ({"seed": -(2**63) - 1}, "seed", "integer_below_min_value", "Expected a value >= -9223372036854775808"),
    ({"max_tokens": 0}, "max_tokens", "integer_below_min_value", "Expected a value >= 1, but got 0 instead."),
    ({"max_tokens": 10**30}, "max_tokens", "integer_above_max_value", "integer above maximum value."),
    ({"logit_bias": {"5": 101}}, "logit_bias", None, "biases are from -100 to 100, but token 5 has one of 101."),
    ({"logit_bias": {"5": -101}}, "logit_bias", None, "biases are from -100 to 100"),
    (
        {"messages": []},
        "messages",
        "empty_array",
        "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.",
    ),
    ({"messages": [{"role": "user", "content": []}]}, "messages[0].content", "empty_array", "'messages[0].content'"),
    ({"tools": []}, "tools", "empty_array", "Invalid 'tools': empty array."),
    ({"stop": ""}, "stop", "empty_string", "Invalid 'stop': empty string."),
    ({"stop": ["a", ""]}, "stop[1]", "empty_string", "Invalid 'stop[1]': empty string."),
    ({"model": ""}, None, None, "you must provide a model parameter"),
    (
        {"stop": list("abcde")},
        "stop",
        "array_above_max_length",
        "array too long. Expected an array with maximum length 4, but got an array with length 5 instead.",
    ),
    ({"tools": [FUNCTION] * 129}, "tools", "array_above_max_length", "maximum length 128"),
    (
        {"metadata": {"k": "v" * 513}},
        "metadata.k",
        "string_above_max_length",
        "string too long. Expected a string with maximum length 512, but got a string with length 513 instead.",
    ),
    (
        {"metadata": {"k" * 65: "v"}},
        f"metadata.{'k' * 65}",
        "property_name_above_max_length",
        "Invalid property name in 'metadata': string too long. Expected a string with maximum length 64, but got",
    ),
    (
        {"metadata": {str(number): "" for number in range(17)}},
        "metadata",
        "object_above_max_properties",
        "Expected an object with at most 16 properties, but got an object with 17 properties instead.",
    ),
    ({"safety_identifier": "s" * 129}, "safety_identifier", "string_above_max_length", "maximum length 128"),
    ({"prompt_cache_key": "k" * 65}, "prompt_cache_key", "string_above_max_length", "maximum length 64"),
    # unknown fields
    ({"beams": 5}, None, None, "Unrecognized request argument supplied: beams"),
    ({"beams": 5, "best_of": 0, "n": "x"}, None, None, "Unrecognized request arguments supplied: beams, best_of"),
    (
        {"messages": [USER | {"foo": 1}]},
        "messages[0].foo",
        "unknown_parameter",
        "Unknown parameter: 'messages[0].foo'.",
    ),
    (
        {"tools": [{"type": "function", "function": {"name": "f", "foo": 1}}]},
        "tools[0].function.foo",
        "unknown_parameter",
        "Unknown parameter: 'tools[0].function.foo'.",
    ),
    # more than one field
    (
        {"stream_options": {"include_usage": True}},
        "stream_options",
        None,
        "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
    ),
    ({"top_logprobs": 2}, "top_logprobs", None, "is only allowed when 'logprobs' is enabled."),
    ({"metadata": {"a": "b"}, "store": False}, "metadata", None, "is only allowed when 'store' is enabled."),
    ({"metadata": {}}, "metadata", None, "is only allowed when 'store' is enabled."),
    (
        {"max_tokens": 5, "max_completion_tokens": 5},
        "max_tokens",
        "invalid_parameter_combination",
        "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
    ),
    ({"tool_choice": "auto"}, "tool_choice", None, "'tool_choice' is only allowed when 'tools' are specified."),
    ({"function_call": "auto"}, "function_call", None, "only allowed when 'functions' are specified."),
    (
        {"tools": [FUNCTION], "tool_choice": {"type": "function", "function": {"name": "g"}}},
        "tool_choice",
        None,
        "no function named 'g' was specified in the 'tools' parameter.",
    ),
    (
        {"tools": [FUNCTION], "tool_choice": {"type": "custom", "custom": {"name": "f"}}},
        "tool_choice",
        None,
        "no custom tool named 'f' was specified",
    ),
    (
        {
            "tools": [FUNCTION],
            "tool_choice": {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "auto", "tools": [FUNCTION, {"type": "function", "function": {"name": "g"}}]},
            },
        },
        "tool_choice",
        None,
        "no function named 'g'",
    ),
    ({"functions": [{"name": "f"}], "function_call": {"name": "g"}}, "function_call", None, "no function named 'g'"),
    ({"functions": [{"name": "f"}], "tools": [FUNCTION]}, "functions", None, "not allowed when 'tools' are specified."),
    (
        {"messages": [USER, {"role": "assistant"}]},
        "messages.[1].content",
        None,
        "Invalid value for 'content': expected a string, got null.",
    ),
    (
        {"messages": [USER, {"role": "tool", "content": "", "tool_call_id": "c1"}]},
        "messages.[1].role",
        None,
        "messages with role 'tool' must be a response to",
    ),
    (
        {
            "messages": [
                {"role": "assistant", "tool_calls": [CALL]},
                {"role": "tool", "content": "", "tool_call_id": "c2"},
            ]
        },
        "messages.[1].tool_call_id",
        None,
        "'tool_call_id' of 'c2' not found in 'tool_calls' of previous message.",
    ),
    (
        {"messages": [{"role": "assistant", "tool_calls": [CALL, CALL | {"id": "c2"}]}, USER]},
        "messages",
        None,
        "did not have response messages: c1, c2",
    ),
]


@pytest.mark.parametrize(("fields", "param", "code", "words"), CASES, ids=lambda value: str(value)[:50])
def test_a_wrong_field_is_named(fields: dict[str, Any], param: str | None, code: str | None, words: str) -> None:
    status, error = error_of(body(**fields))
    assert (status, error["type"], error["param"], error["code"]) == (400, "invalid_request_error", param, code)
    assert words in (error["message"] or "")


FAULTS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"user": 5}, "user"),
    ({"temperature": 9}, "temperature"),
    ({"top_logprobs": 1}, "top_logprobs"),
    ({"parallel_tool_calls": True}, "parallel_tool_calls"),
    ({"metadata": {"a": "b"}}, "metadata"),
    ({"logit_bias": {"5": 101}}, "logit_bias"),
)
"""Faults in the order in which the service reports them: wrong types, wrong values, rules between fields, biases."""


@pytest.mark.parametrize(("first", "second"), list(itertools.combinations(FAULTS, 2)))
def test_of_several_faults_the_service_s_first_is_reported(first: Any, second: Any) -> None:
    for fields in (first[0] | second[0], second[0] | first[0]):
        assert error_of(body(**fields))[1]["param"] == first[1]


def test_no_stop_string_is_no_stop() -> None:
    assert parse_chat(body(stop=[])).sampling.stop == ()


def test_what_a_client_wrote_is_repeated_only_in_part() -> None:
    _, error = error_of(body(messages=[{"role": "x" * 100_000, "content": ""}]))
    assert len(error["message"] or "") < 300
    _, error = error_of(body(**{"y" * 100_000: 1}))
    assert len(error["message"] or "") < 300
