"""vLLM's fields in OpenAI requests under ``/v1``: how they are parsed, and what is refused."""

import json
from typing import Any

import pytest

from api.dialects.azure.parse import ExtraParameters
from api.dialects.azure.parse import parse_chat as parse_azure
from api.dialects.base.interface import Dialect
from api.dialects.openai import OpenAI
from api.dialects.openai.completions import OpenAICompletions
from shared.protocol.errors import Problem, RequestRefused
from shared.protocol.request import ChatRequest, Constraint

CHAT = OpenAI()
COMPLETIONS = OpenAICompletions()
BOTH = pytest.mark.parametrize("dialect", [CHAT, COMPLETIONS], ids=["chat", "completions"])
SCHEMA = {"type": "object", "properties": {"größe": {"type": "integer"}}}
TAG = '{"type":"structural_tag","format":{"type":"any_text"}}'


def parse(dialect: Dialect, **fields: Any) -> ChatRequest:
    plain = {"messages": [{"role": "user", "content": "Hi"}]} if dialect is CHAT else {"prompt": "Hi"}
    return dialect.parse(json.dumps({"model": "m"} | plain | fields).encode())


def refusal(dialect: Dialect, **fields: Any) -> Problem:
    with pytest.raises(RequestRefused) as refused:
        parse(dialect, **fields)
    return refused.value.problem


@BOTH
@pytest.mark.parametrize(
    ("field", "value", "attribute", "expected"),
    [
        ("top_k", 5, "top_k", 5),
        ("top_k", 0, "top_k", 0),
        ("top_k", -1, "top_k", 0),
        ("min_p", 0.1, "min_p", 0.1),
        ("repetition_penalty", 1.2, "repetition_penalty", 1.2),
        ("ignore_eos", True, "ignore_eos", True),
        ("stop_token_ids", [5, 7], "stop_token_ids", (5, 7)),
        ("include_stop_str_in_output", True, "include_stop", True),
        ("skip_special_tokens", False, "skip_special_tokens", False),
        ("skip_special_tokens", True, "skip_special_tokens", True),
        ("min_tokens", 3, "min_tokens", 3),
        ("allowed_token_ids", [5, 7], "allowed_token_ids", (5, 7)),
        ("bad_words", ["a", "b c"], "bad_words", ("a", "b c")),
    ],
)
def test_sampling(dialect: Dialect, field: str, value: Any, attribute: str, expected: Any) -> None:
    assert getattr(parse(dialect, **{field: value}).sampling, attribute) == expected
    assert parse(dialect, **{field: None}) == parse(dialect)


@BOTH
@pytest.mark.parametrize(
    ("fields", "constraint"),
    [
        (
            {"structured_outputs": {"json": SCHEMA}},
            Constraint(
                kind="json_schema",
                value='{"type":"object","properties":{"größe":{"type":"integer"}}}',
                param="structured_outputs.json",
            ),
        ),
        (
            {"structured_outputs": {"json": '{"const": 1}', "disable_any_whitespace": False}},
            Constraint(kind="json_schema", value='{"const": 1}', param="structured_outputs.json"),
        ),
        (
            {"structured_outputs": {"regex": "[ab]+"}},
            Constraint(kind="regex", value="[ab]+", param="structured_outputs.regex"),
        ),
        (
            {"structured_outputs": {"grammar": 'root ::= "a"'}},
            Constraint(kind="grammar", value='root ::= "a"', param="structured_outputs.grammar"),
        ),
        (
            {"structured_outputs": {"json_object": True}},
            Constraint(kind="json_object", param="structured_outputs.json_object"),
        ),
        (
            {"structured_outputs": {"structural_tag": TAG}},
            Constraint(kind="structural_tag", value=TAG, param="structured_outputs.structural_tag"),
        ),
        ({"guided_json": {"const": 1}}, Constraint(kind="json_schema", value='{"const":1}', param="guided_json")),
        ({"guided_regex": "a"}, Constraint(kind="regex", value="a", param="guided_regex")),
        ({"guided_grammar": 'root ::= "a"'}, Constraint(kind="grammar", value='root ::= "a"', param="guided_grammar")),
    ],
)
def test_structured_outputs(dialect: Dialect, fields: dict[str, Any], constraint: Constraint) -> None:
    assert parse(dialect, **fields).constraint == constraint


@BOTH
@pytest.mark.parametrize("choices", [["yes"], ["yes", "größer", 'a "b"']])
def test_a_choice_is_one_of_its_texts(dialect: Dialect, choices: list[str]) -> None:
    for fields in ({"structured_outputs": {"choice": choices}}, {"guided_choice": choices}):
        constraint = parse(dialect, **fields).constraint
        assert constraint is not None
        assert constraint.kind == "structural_tag"
        form = json.loads(constraint.value)["format"]
        options = form["elements"] if form["type"] == "or" else [form]
        assert options == [{"type": "const_string", "value": choice} for choice in choices]


@BOTH
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"top_k": -2}, "top_k"),
        ({"top_k": 1.5}, "top_k"),
        ({"min_p": 1.5}, "min_p"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"stop_token_ids": [-1]}, "stop_token_ids[0]"),
        ({"stop_token_ids": "5"}, "stop_token_ids"),
        ({"min_tokens": -1}, "min_tokens"),
        ({"min_tokens": 6, "max_tokens": 5}, "min_tokens"),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"json_object": False}}, "structured_outputs"),
        ({"structured_outputs": {"json": 5}}, "structured_outputs.json"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs.choice"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
        ({"structured_outputs": {"choice": [1]}}, "structured_outputs.choice[0]"),
        ({"structured_outputs": {"choice": "a"}}, "structured_outputs.choice"),
        ({"structured_outputs": {"whitespace_pattern": " "}}, "structured_outputs.whitespace_pattern"),
        ({"structured_outputs": {"regex": "a"}, "guided_regex": "a"}, "guided_regex"),
        ({"guided_regex": "a", "guided_grammar": "b"}, "guided_grammar"),
    ],
)
def test_what_is_wrong_is_refused_by_name(dialect: Dialect, fields: dict[str, Any], param: str) -> None:
    problem = refusal(dialect, **fields)
    assert problem.param == param
    assert problem.code


def test_one_form_at_a_time() -> None:
    problem = refusal(CHAT, guided_regex="a", response_format={"type": "json_object"})
    assert (problem.param, "'response_format'" in problem.message) == ("guided_regex", True)


def test_variables_for_the_chat_template() -> None:
    request = parse(CHAT, chat_template_kwargs={"enable_thinking": True}, reasoning_effort="none")
    assert json.loads(request.template_kwargs or "") == {
        "enable_thinking": True,
        "thinking": False,
        "reasoning_effort": "none",
    }
    assert refusal(CHAT, chat_template_kwargs={"messages": []}).param == "chat_template_kwargs"


@BOTH
@pytest.mark.parametrize("field", ["use_beam_search", "length_penalty", "guided_decoding_backend", "surprise"])
def test_other_fields_are_unknown_as_before(dialect: Dialect, field: str) -> None:
    assert refusal(dialect, **{field: 1}).message == f"Unrecognized request argument supplied: {field}"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("structured_outputs", {"regex": "a"}),
        ("guided_json", {"const": 1}),
        ("guided_regex", "a"),
        ("guided_choice", ["a", "b"]),
        ("guided_grammar", 'root ::= "a"'),
    ],
)
def test_azure_passes_them_through_where_asked_to(field: str, value: Any) -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}], field: value}
    request = parse_azure(body, "m", ExtraParameters.PASS_THROUGH)
    assert request.constraint is not None
    assert request.constraint.param.startswith(field)
    with pytest.raises(RequestRefused) as refused:
        parse_azure(body, "m", ExtraParameters.ERROR)
    assert refused.value.problem.param == field


@BOTH
def test_white_space_that_can_not_be_disabled_is_refused_by_name(dialect: Dialect) -> None:
    with pytest.raises(RequestRefused) as refusal:
        parse(dialect, structured_outputs={"json": "{}", "disable_any_whitespace": True})
    assert refusal.value.problem.param == "structured_outputs.disable_any_whitespace"
