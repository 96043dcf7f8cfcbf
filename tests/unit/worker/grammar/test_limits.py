"""Upper limits of patterns that become a ``maxLength``, and that both together allow the same texts as before."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.parsers.formats import OutputFormat
from shared.protocol.request import ChatRequest, Constraint, Message, Tool
from tests.support.grammar_oracle import Texts, tiny_oracle
from worker.grammar.ebnf import Rules
from worker.grammar.lengths import LengthChecker
from worker.grammar.patterns import regex_of, without_upper_limit
from worker.grammar.plan import Plan
from worker.grammar.planner import make_plan
from worker.grammar.regex_writer import written
from worker.grammar.schema.limits import length_limits_of

LONG = {"type": "string", "pattern": "^[a-z]{1,64}$"}
LIMITED = LONG | {"maxLength": 64}


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("^[a-z]{1,64}$", ("^[a-z]{1,}$", 64)),
        ("^.{0,200}$", ("^.{0,}$", 200)),
        ("^[a-z][a-z0-9_]{0,62}$", ("^[a-z][a-z0-9_]{0,}$", 63)),
        (r"^id-[0-9]{4}\.(?:[a-z]!){2,20}?x{3}$", (r"^id-[0-9]{4}\.(?:[a-z]!){2,}?x{3}$", 51)),
        ("^[0-9a-f]{1,64}$", None),
        ("^[0-9]{1,1000}$", ("^[0-9]{1,}$", 1000)),
        ("^[a-z]{1,8}$", None),
        ("^[a-z]{64}$", None),
        ("^[a-z]{1,}$", None),
        ("[a-z]{1,64}", None),
        ("^[a-z]{1,64}", None),
        ("^[a-z]{1,64}$|^b$", None),
        ("^a?[a-z]{1,64}$", None),
        ("^(a|bc){1,200}$", None),
    ],
)
def test_the_only_variable_part_of_a_pattern_gives_its_limit(pattern: str, expected: tuple[str, int] | None) -> None:
    left, limit = expected or (pattern, None)
    node, found = without_upper_limit(regex_of(pattern))
    rules = Rules()
    assert written(rules, node, in_json=True) == written(rules, regex_of(left), in_json=True)
    assert found == limit


@given(
    st.data(),
    st.sampled_from(
        [
            ("^[a-z]{2,12}$", "^[a-z]{2,}$", 12),
            ("^a[^b]{0,9}c$", "^a[^b]*c$", 11),
            ("^(?:[a-z]b){1,9}a$", "^(?:[a-z]b)+a$", 19),
        ]
    ),
)
def test_a_text_matches_as_before(data: st.DataObject, patterns: tuple[str, str, int]) -> None:
    pattern, left, limit = patterns
    assert without_upper_limit(regex_of(pattern))[1] == limit
    text = data.draw(st.from_regex(pattern, fullmatch=True) | st.from_regex(left, fullmatch=True))
    assert bool(re.fullmatch(pattern, text)) == (bool(re.fullmatch(left, text)) and len(text) <= limit)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (LONG | {"maxLength": 10}, LONG | {"maxLength": 10}),
        (LONG | {"maxLength": 100}, LIMITED),
        ({"properties": {"pattern": LONG, "a": LONG}}, {"properties": {"pattern": LIMITED, "a": LIMITED}}),
        ({"anyOf": [LONG, True], "$defs": {"a": LONG}}, {"anyOf": [LIMITED, True], "$defs": {"a": LIMITED}}),
        ({"patternProperties": {"^a": LONG}, "then": LONG}, {"patternProperties": {"^a": LIMITED}, "then": LIMITED}),
        (LONG | {"maxLength": "many"}, LONG | {"maxLength": "many"}),
    ],
)
def test_limits_of_patterns_are_enforced_as_max_length(schema: Any, expected: Any) -> None:
    (limits,) = length_limits_of([""], json.dumps(schema))
    assert json.loads(limits.schema) == expected


def test_the_limit_of_a_pattern_holds_wherever_the_grammar_leaves_it_open() -> None:
    schema = {"type": "object", "patternProperties": {"^x": LONG}}
    plan = _plan(constraint=Constraint(kind="json_schema", value=json.dumps(schema)))
    assert plan.grammar is not None
    text = f'{{"x":"{"a" * 65}"}}'
    assert text in Texts(plan.grammar.text)
    assert LengthChecker(plan.length_limits).violates(text)
    assert not LengthChecker(plan.length_limits).violates(text.replace("aa", "a", 1))


def _plan(**fields: Any) -> Plan:
    request = ChatRequest(model="m", messages=(Message(role="user", content="Hi"),), **fields)
    return make_plan(request, OutputFormat(), "")


def test_a_match_that_is_too_long_is_noticed() -> None:
    plan = _plan(constraint=Constraint(kind="json_schema", value=json.dumps(LONG)))
    assert plan.grammar is not None
    texts = Texts(plan.grammar.text)
    assert [text for text in ("a", "a" * 64, "a" * 65, "", "A") if f'"{text}"' in texts] == ["a", "a" * 64, "a" * 65]
    assert not LengthChecker(plan.length_limits).violates(f'"{"a" * 64}"')
    assert LengthChecker(plan.length_limits).violates(f'"{"a" * 65}')


@pytest.mark.parametrize("pattern", ["[a-z]{1,64}", "^[a-z]{1,64}$"])
@pytest.mark.parametrize(
    ("output", "prompt_end", "begin"),
    [(OutputFormat(), "", ""), (OutputFormat(reasoning="think"), "<think>\n", "</think>")],
)
def test_a_text_that_is_too_long_is_noticed(pattern: str, output: OutputFormat, prompt_end: str, begin: str) -> None:
    constraint = Constraint(kind="regex", value=pattern)
    request = ChatRequest(model="m", messages=(Message(role="user", content="Hi"),), constraint=constraint)
    plan = make_plan(request, output, prompt_end)
    lead = f"{'b' * 100}{begin}" if begin else ""
    assert not LengthChecker(plan.length_limits).violates(lead + "a" * 64)
    watch = LengthChecker(plan.length_limits)
    assert [watch.violates(character) for character in lead + "a" * 65].index(True) == len(lead) + 64


@pytest.mark.parametrize(
    ("output", "tools"),
    [(OutputFormat(reasoning="think"), ()), (OutputFormat(tools="hermes"), (Tool(name="f"),))],
)
def test_the_grammar_counts_text_that_may_begin_in_several_places(
    output: OutputFormat, tools: tuple[Tool, ...]
) -> None:
    constraint = Constraint(kind="regex", value="[a-z]{1,9}")
    request = ChatRequest(model="m", messages=(Message(role="user", content="Hi"),), constraint=constraint, tools=tools)
    plan = make_plan(request, output, "")
    assert plan.length_limits == ()
    assert plan.grammar is not None
    texts = [text for text in ("a" * 9, "a" * 10) if tiny_oracle().accepts(plan.grammar, text)]
    assert texts == ["a" * 9]


@pytest.mark.parametrize("strict", [True, False])
def test_the_grammar_counts_where_nothing_else_does(strict: bool) -> None:
    """The engine's process does not watch the arguments of tools that are not strict."""
    schema = {"type": "object", "properties": {"a": LONG | {"pattern": "^[a-z]{1,9}$"}}, "required": ["a"]}
    plan = _plan(tools=(Tool(name="f", parameters=json.dumps(schema), strict=strict),), tool_choice="required")
    assert plan.grammar is not None
    text = f'<tool_call>\n{{"name": "f", "arguments": {{"a":"{"a" * 10}"}}}}\n</tool_call>'
    assert tiny_oracle().accepts(plan.grammar, text) == strict
    assert LengthChecker(plan.length_limits).violates(text) == strict


def test_a_schema_that_cannot_be_read_has_no_limits() -> None:
    broken = (Tool(name="f", parameters='{"pattern": "^[a-z]{1,64}$"', strict=True),)
    with pytest.raises(Exception, match="can't be read as JSON"):
        _plan(tools=broken, tool_choice="required")
