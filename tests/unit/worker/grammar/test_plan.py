"""The plan of an answer: what is held to a grammar, and in which format its text will be read."""

import json
from typing import Any

import msgspec
import pytest

from shared.parsers.formats import TOOL_FORMATS, OutputFormat, ToolFormatName
from shared.protocol.errors import ProblemKind, RequestRefused
from shared.protocol.request import ChatRequest, Constraint, Message, Sampling, Tool, ToolCall
from tests.support.grammar_oracle import Texts, tiny_oracle
from worker.engine.protocol import OutputGrammar
from worker.grammar.planner import make_plan, plain_plan
from worker.prompt.child import check_size
from worker.prompt.tools import written_calls

CITY = Tool(
    name="weather",
    parameters='{"type":"object","properties":{"city":{"enum":["Rome","Oslo"]}},"required":["city"]}',
)
NOW = Tool(name="now")
PERSON = Constraint(kind="json_schema", value='{"type":"object","properties":{"age":{"const":3}},"required":["age"]}')
HERMES = OutputFormat(tools="hermes")
THINKS = OutputFormat(tools="hermes", reasoning="think")


def request(**fields: Any) -> ChatRequest:
    return ChatRequest(model="m", messages=(Message(role="user", content="Hi"),), **fields)


def part_of(grammar: OutputGrammar | None) -> Any:
    """The outermost part of a structural tag."""
    assert grammar is not None
    assert grammar.tagged
    return json.loads(grammar.text)["format"]


def test_a_plain_chat_is_free_and_plain() -> None:
    plan = make_plan(request(), HERMES, "")
    assert (plan.grammar, plan.tools, plan.reasoning) == (None, "", "")


def test_a_schema_becomes_a_compact_grammar() -> None:
    plan = make_plan(request(constraint=PERSON), HERMES, "")
    assert plan.grammar is not None
    assert not plan.grammar.tagged
    assert '{"age":3}' in Texts(plan.grammar.text)
    assert plan.param == "response_format"


def test_json_mode_is_an_object_with_a_member_after_a_space() -> None:
    grammar = make_plan(request(constraint=Constraint(kind="json_object", value="")), HERMES, "").grammar
    assert grammar is not None
    texts = Texts(grammar.text)
    made = ['{ "a":1}', '{ "a": {}, "":["x"] }', '{ "a":{"b":1}}']
    assert [
        text for text in [*made, "{}", "{ }", '{"a":1}', '{  "a":1}', '{ "a":1 , "b":2}', "[]"] if text in texts
    ] == made


def test_a_clients_own_grammar_is_passed_on() -> None:
    constraint = Constraint(kind="grammar", value='root ::= "a"')
    assert make_plan(request(constraint=constraint), HERMES, "").grammar == OutputGrammar(constraint.value)


def test_a_regular_expression_becomes_a_grammar() -> None:
    grammar = make_plan(request(constraint=Constraint(kind="regex", value="(a|b)c")), HERMES, "").grammar
    assert grammar is not None
    assert not grammar.tagged
    texts = Texts(grammar.text)
    assert [text for text in ("ac", "bc", "a", "abc", "c") if text in texts] == ["ac", "bc"]


@pytest.mark.parametrize("fields", [{"constraint": PERSON}, {"tools": (NOW,), "tool_choice": "required"}])
def test_a_text_that_a_grammar_ends_can_not_go_on(fields: dict[str, Any]) -> None:
    asked = msgspec.structs.replace(request(**fields), sampling=Sampling(ignore_eos=True))
    for form in (HERMES, OutputFormat()):
        with pytest.raises(RequestRefused) as refusal:
            make_plan(asked, form, "")
        assert refusal.value.problem.param == "ignore_eos"
    assert make_plan(request(sampling=Sampling(ignore_eos=True)), HERMES, "").grammar is None


def test_schemas_in_a_structural_tag_become_grammars() -> None:
    form = {"type": "sequence", "elements": [{"type": "json_schema", "json_schema": {"const": 1}}]}
    tag = Constraint(kind="structural_tag", value=json.dumps({"type": "structural_tag", "format": form}))
    (element,) = part_of(make_plan(request(constraint=tag), HERMES, "").grammar)["elements"]
    assert element["type"] == "grammar"
    assert "1" in Texts(element["grammar"])


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("{", "JSON"),
        ("[]", "format"),
        ('{"format":{"type":"json_schema","json_schema":{"$dynamicRef":"#a"}}}', "#/format/json_schema/$dynamicRef"),
        ('{"format":{"type":"const_string","value":"a"},"x":1}', "#/x"),
        ('{"format":{"type":"const_string","value":"a","x":1}}', "#/format/x"),
        ('{"format":{"type":"triggered_tags","at_leastone":true}}', "at_least_one"),
        ('{"format":{"type":"triggered_tags","tags":[{"begin":"a","x":1}]}}', "#/format/tags/0/x"),
    ],
)
def test_a_structural_tag_that_cannot_be_held_is_refused(value: str, said: str) -> None:
    with pytest.raises(RequestRefused) as refusal:
        make_plan(request(constraint=Constraint(kind="structural_tag", value=value)), HERMES, "")
    assert refusal.value.problem.kind is ProblemKind.INVALID
    assert refusal.value.problem.param == "response_format"
    assert said in refusal.value.problem.message


@pytest.mark.parametrize("name", TOOL_FORMATS)
def test_free_tools_are_read_in_the_models_format_and_guided_from_its_trigger_on(name: ToolFormatName) -> None:
    plan = make_plan(request(tools=(CITY, NOW)), OutputFormat(tools=name), "")
    part = part_of(plan.grammar)
    assert plan.tools == name
    assert part["type"] == "triggered_tags"
    assert all(any(tag["begin"].startswith(trigger) for trigger in part["triggers"]) for tag in part["tags"])
    assert not part["stop_after_first"] or TOOL_FORMATS[name].shape.single


@pytest.mark.parametrize("name", TOOL_FORMATS)
def test_calls_as_they_are_written_are_in_the_grammar_and_wrong_arguments_are_not(name: ToolFormatName) -> None:
    shape = TOOL_FORMATS[name].shape
    parameters = '{"properties": {"city": {"enum": ["Oslo", "Rome"]}, "x": {"type": "string"}}, "required": ["city"]}'
    tool = Tool(name="city", parameters=parameters, strict=bool(shape.quote))
    calls = [ToolCall(id="1", name="city", arguments='{"city": "Oslo", "x": "y"}')] * (1 if shape.single else 2)
    grammar = make_plan(request(tools=(tool,), tool_choice="required"), OutputFormat(tools=name), "").grammar
    assert grammar is not None
    text = written_calls(calls, name, str)
    assert tiny_oracle().accepts(grammar, text)
    assert not tiny_oracle().accepts(grammar, text.replace("Oslo", "Bonn"))


@pytest.mark.parametrize("name", TOOL_FORMATS)
def test_lengths_are_held_in_every_format_if_strict(name: ToolFormatName) -> None:
    codes = '{"city": {"type": "array", "items": {"type": "string", "maxLength": 3}}}'
    parameters = f'{{"properties": {codes}, "required": ["city"], "additionalProperties": false}}'
    tool = Tool(name="city", parameters=parameters, strict=True)
    plan = make_plan(request(tools=(tool,), tool_choice="required"), OutputFormat(tools=name), "")
    assert plan.grammar is not None
    call = ToolCall(id="1", name="city", arguments='{"city": ["abc"]}')
    text = written_calls([call], name, str).replace("'abc'", '"abc"')
    assert tiny_oracle().accepts(plan.grammar, text)
    assert plan.length_limits or not tiny_oracle().accepts(plan.grammar, text.replace("abc", "abcd"))


def test_arguments_follow_the_tools_schema() -> None:
    part = part_of(make_plan(request(tools=(CITY, NOW)), HERMES, "").grammar)
    weather, now = (Texts(tag["content"]["grammar"]) for tag in part["tags"])
    assert '{"city":"Oslo"}' in weather
    assert '{"city":"Bonn"}' not in weather
    assert "{}" in now
    assert '{"x":1}' not in now


def test_without_parallel_calls_the_first_one_is_the_last() -> None:
    part = part_of(make_plan(request(tools=(CITY,), parallel_tool_calls=False), HERMES, "").grammar)
    assert part["stop_after_first"]


def test_no_choice_reads_no_calls() -> None:
    plan = make_plan(request(tools=(CITY,), tool_choice="none"), HERMES, "")
    assert (plan.grammar, plan.tools) == (None, "")


def test_required_calls_without_a_format_have_that_of_hermes() -> None:
    required = request(tools=(CITY, NOW), tool_choice="required")
    assert make_plan(required, OutputFormat(), "") == make_plan(required, HERMES, "")


@pytest.mark.parametrize("name", TOOL_FORMATS)
@pytest.mark.parametrize("fields", [{"named_tool": "now"}, {"parallel_tool_calls": False}])
def test_one_call_is_the_whole_text_in_every_format(name: ToolFormatName, fields: dict[str, Any]) -> None:
    plan = make_plan(request(tools=(CITY, NOW), tool_choice="required", **fields), OutputFormat(tools=name), "")
    part = part_of(plan.grammar)
    if part["type"] == "tag" and part["content"]["type"] != "grammar":
        part = part["content"]  # calls in a group
    tags = part["elements"] if part["type"] == "or" else [part]
    assert {tag["type"] for tag in tags} == {"tag"}
    grammar = tags[0]["content"]["grammar"]
    call = '{"name": "now", "arguments": {}}'
    if name in ("mistral", "phi4", "granite"):
        assert f"[{call}]" in Texts(grammar)
    assert f"[{call},{call}]" not in Texts(grammar)


@pytest.mark.parametrize("name", TOOL_FORMATS)
def test_a_required_call_is_one_or_more(name: ToolFormatName) -> None:
    plan = make_plan(request(tools=(CITY, NOW), tool_choice="required"), OutputFormat(tools=name), "")
    assert part_of(plan.grammar)["type"] in ("tags_with_separator", "tag", "or")


def test_a_named_tool_is_the_only_one() -> None:
    plan = make_plan(request(tools=(CITY, NOW), tool_choice="required", named_tool="now"), HERMES, "")
    assert part_of(plan.grammar)["begin"] == '<tool_call>\n{"name": "now", "arguments": '


@pytest.mark.parametrize(
    ("prompt_end", "in_reasoning", "kind", "begins"),
    [
        ("assistant\n<think>\n", True, "sequence", [""]),
        ("assistant\n", False, "or", ["<think>"]),
    ],
)
def test_reasoning_comes_before_what_is_held(prompt_end: str, in_reasoning: bool, kind: str, begins: list[str]) -> None:
    plan = make_plan(request(constraint=PERSON), THINKS, prompt_end)
    part = part_of(plan.grammar)
    assert (plan.reasoning, plan.in_reasoning, part["type"]) == ("think", in_reasoning, kind)
    thought = part["elements"][0] if kind == "sequence" else part["elements"][1]["elements"][0]
    assert [thought["begin"]] == begins
    assert thought["end"] == "</think>"


def test_reasoning_that_the_prompt_has_closed_is_over() -> None:
    plan = make_plan(request(constraint=PERSON), THINKS, "assistant\n<think>\n\n</think>\n\n")
    assert plan.grammar is not None
    assert not plan.grammar.tagged


def test_a_schema_with_optional_tools_allows_both() -> None:
    part = part_of(make_plan(request(tools=(NOW,), constraint=PERSON), HERMES, "").grammar)
    assert [element["type"] for element in part["elements"]] == ["grammar", "tag"]


def test_tools_without_a_grammar_are_refused_with_a_schema() -> None:
    with pytest.raises(RequestRefused, match="response_format"):
        make_plan(request(tools=(NOW,), constraint=PERSON), OutputFormat(), "")


def test_a_tools_wrong_schema_is_refused_by_its_place() -> None:
    wrong = Tool(name="wrong", parameters='{"type":"nonsense"}')
    with pytest.raises(RequestRefused) as refusal:
        make_plan(request(tools=(NOW, wrong)), HERMES, "")
    assert refusal.value.problem.param == "tools[1].function.parameters"
    assert "'wrong'" in refusal.value.problem.message


@pytest.mark.parametrize(("strict", "refused"), [(True, True), (False, False)])
def test_only_strict_tools_are_refused_for_what_cannot_be_held(strict: bool, refused: bool) -> None:
    tool = Tool(name="t", parameters='{"properties":{"a":{"type":"integer","multipleOf":3}}}', strict=strict)
    if refused:
        with pytest.raises(RequestRefused, match="multipleOf"):
            make_plan(request(tools=(tool,)), HERMES, "")
    else:
        (tag,) = part_of(make_plan(request(tools=(tool,)), HERMES, "").grammar)["tags"]
        assert '{"a":4}' in Texts(tag["content"]["grammar"])


def test_qwens_parameters_are_raw_text_or_json() -> None:
    parameters = {
        "type": "object",
        "properties": {"q": {"type": "string"}, "n": {"$ref": "#/$defs/n"}, "u": {"enum": ["c", "f"]}},
        "required": ["q"],
        "$defs": {"n": {"type": "integer"}},
    }
    tool = Tool(name="find", parameters=json.dumps(parameters))
    (tag,) = part_of(make_plan(request(tools=(tool,)), OutputFormat(tools="qwen3_coder"), "").grammar)["tags"]
    texts = Texts(tag["content"]["grammar"])
    assert "<parameter=q>\na < b\n</parameter>\n<parameter=n>\n3\n</parameter>\n" in texts
    assert "<parameter=q>\nx\n</parameter>\n<parameter=u>\nc\n</parameter>\n" in texts
    assert "<parameter=n>\n3\n</parameter>\n" not in texts


def test_a_constraint_is_refused_by_the_field_that_asked_for_it() -> None:
    wrong = Constraint(kind="json_schema", value="{", param="guided_json")
    for fields in ({}, {"tools": (NOW,)}):
        with pytest.raises(RequestRefused, match="guided_json") as refusal:
            make_plan(request(constraint=wrong, **fields), HERMES, "")
        assert refusal.value.problem.param == "guided_json"
    with pytest.raises(RequestRefused, match="guided_json"):
        plain_plan(request(constraint=wrong))
    plan = make_plan(request(constraint=Constraint(kind="regex", value="a", param="guided_regex")), HERMES, "")
    assert plan.param == "guided_regex"


def test_a_plain_completion_is_held_without_formats() -> None:
    assert plain_plan(request()).grammar is None
    plan = plain_plan(request(constraint=PERSON))
    assert plan.grammar is not None
    assert (plan.grammar.tagged, plan.tools) == (False, "")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"constraint": Constraint(kind="regex", value="é" * 51)}, "response_format"),
        ({"tools": (NOW, Tool(name="t", parameters=" " * 101))}, "tools[1].function.parameters"),
    ],
)
def test_large_schemas_are_refused_unread(fields: dict[str, Any], param: str) -> None:
    check_size(request(**fields), 102)
    with pytest.raises(RequestRefused) as refusal:
        check_size(request(**fields), 100)
    assert refusal.value.problem.param == param
    assert "100" in refusal.value.problem.message
