"""Length limits on strings: the first string that is too long is noticed, at once and nowhere else."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.parsers.formats import TOOL_FORMATS, OutputFormat
from shared.protocol.request import ChatRequest, Constraint, Message, Tool
from tests.support.grammar_oracle import Texts
from worker.engine.protocol import LengthLimits
from worker.grammar.calls import is_counted
from worker.grammar.json_tokens import characters_in, closing_lengths
from worker.grammar.lengths import LengthChecker
from worker.grammar.plan import Plan
from worker.grammar.planner import make_plan, plain_plan
from worker.grammar.schema.compiler import schema_grammar

NAMED = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 3}, "b": {"type": "string"}}}


def _exceeds(schema: Any, text: str, begin: str = "", size: int = 1) -> bool:
    watch = LengthChecker([LengthLimits(begin, json.dumps(schema))])
    return any(watch.violates(text[at : at + size]) for at in range(0, len(text), size))


@pytest.mark.parametrize("size", [1, 2, 5, 100])
@pytest.mark.parametrize(
    ("schema", "fits", "too_long"),
    [
        ({"maxLength": 3}, ['"abc"', '"\\n\\n\\n"', '"\\u00e9\\"x"', '"\\ud83d\\ude00ab"', '""', "12345"], ['"abcd']),
        ({"maxLength": 0}, ['""'], ['"a', '"\\n']),
        (NAMED, ['{"a":"abc","b":"abcdef"}', '{"b": "abcd"}'], ['{"a":"abcd', '{"b":"","a": "\\n\\n\\n\\n']),
        ({"items": {"maxLength": 1}}, ['["a", "b"]'], ['["a","bc']),
        ({"prefixItems": [{"maxLength": 1}], "items": {"maxLength": 2}}, ['["a","bc"]'], ['["ab', '["a","bcd']),
        ({"items": [{}, {"maxLength": 1}]}, ['["abc","a"]'], ['["","ab']),
        ({"additionalProperties": {"maxLength": 1}}, ['{"abc":"d"}'], ['{"a":"bc']),
        ({"properties": {"é": {"maxLength": 1}}}, ['{"e":"abc","\\u00e9":"a"}'], ['{"\\u00e9":"ab']),
        ({"$ref": "#/$defs/s", "$defs": {"s": {"maxLength": 1}}}, ['"a"'], ['"ab']),
        ({"anyOf": [{"type": "null"}, {"maxLength": 1}]}, ["null", '"a"'], ['"ab']),
        ({"allOf": [{"maxLength": 5}, {"maxLength": 2}]}, ['"ab"'], ['"abc']),
        (
            {"properties": {"s": {"maxLength": 1}, "next": {"$ref": "#"}}},
            ['{"next":{"s":"a","next":{}}}'],
            ['{"next":{"next":{"s":"ab'],
        ),
        ({"properties": {"o": {"properties": {"x": {}}}, "a": {"maxLength": 1}}}, ['{"o":{"x":"abc"},"a":"b"}'], []),
    ],
)
def test_a_string_that_is_too_long_is_noticed(schema: Any, fits: list[str], too_long: list[str], size: int) -> None:
    assert [text for text in fits if _exceeds(schema, text, size=size)] == []
    assert [text for text in too_long if not _exceeds(schema, text, size=size)] == []


@given(st.text(max_size=8), st.integers(0, 8), st.integers(1, 4), st.booleans())
def test_characters_are_counted_not_escapes(text: str, most: int, size: int, ascii_only: bool) -> None:
    written = json.dumps({"a": [text]}, ensure_ascii=ascii_only)
    schema = {"properties": {"a": {"items": {"maxLength": most}}}}
    assert _exceeds(schema, written, size=size) == (len(text) > most)


@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_value_is_found_behind_its_marker_each_time(size: int) -> None:
    schema = {"maxLength": 2}
    assert not _exceeds(schema, 'say "hello" <v>"ab"</v> "hello" <v>"c"</v>', "<v>", size)
    assert _exceeds(schema, 'say "hello" <v>"ab"</v> "hello" <v>"abc', "<v>", size)


@given(st.text(st.sampled_from('{}[]:,"\\ua0 tx'), max_size=30), st.integers(1, 5))
def test_what_is_no_json_is_passed_over(text: str, size: int) -> None:
    schema = {"properties": {"a": {"maxLength": 100}}, "items": {"maxLength": 100}}
    assert not _exceeds(schema, text, size=size)


def test_reasoning_before_the_content_is_not_counted() -> None:
    watch = LengthChecker([LengthLimits("", '{"maxLength":2}'), LengthLimits("</think>", '{"maxLength":2}')])
    assert not watch.violates('<think>"hello"</think>"ab"')
    watch = LengthChecker([LengthLimits("", '{"maxLength":2}'), LengthLimits("</think>", '{"maxLength":2}')])
    assert watch.violates('<think>"hello"</think>"abc')


def _plan(output: OutputFormat, prompt_end: str = "", *, minimums: bool = False, **fields: Any) -> Plan:
    request = ChatRequest(model="m", messages=(Message(role="user", content="Hi"),), **fields)
    return make_plan(request, output, prompt_end, minimums=minimums)


def test_the_plan_says_what_to_watch() -> None:
    schema = '{"type":"string","maxLength":5}'
    constraint = Constraint(kind="json_schema", value=schema)
    assert _plan(OutputFormat(), constraint=constraint).length_limits == (LengthLimits("", schema),)
    thinking = OutputFormat(reasoning="think")
    assert _plan(thinking, constraint=constraint).length_limits == (
        LengthLimits("", schema),
        LengthLimits("</think>", schema),
    )
    assert _plan(thinking, "<think>\n", constraint=constraint).length_limits == (LengthLimits("</think>", schema),)
    assert plain_plan(ChatRequest(model="m", messages=(), constraint=constraint)).length_limits == (
        LengthLimits("", schema),
    )
    unlimited = Constraint(kind="json_schema", value='{"type":"string"}')
    assert _plan(OutputFormat(), constraint=unlimited).length_limits == ()


@pytest.mark.parametrize("name", [name for name, form in TOOL_FORMATS.items() if is_counted(form.shape)])
def test_arguments_of_strict_tools_are_watched_in_every_format(name: Any) -> None:
    parameters = '{"type":"object","properties":{"a":{"type":"string","maxLength":2}}}'
    tools = (Tool(name="strict", parameters=parameters, strict=True), Tool(name="free", parameters=parameters))
    plan = _plan(OutputFormat(tools=name), tools=tools, tool_choice="required")
    shape = TOOL_FORMATS[name].shape
    (limits,) = plan.length_limits
    begin = shape.begin_for("strict") if shape.content == "arguments" else shape.begin
    watch = LengthChecker(plan.length_limits)
    lead = limits.begin if shape.content == "arguments" else f"{begin}[{limits.begin}"
    assert not watch.violates(lead + '{"a":"bc"}')
    assert watch.violates(lead + '{"a":"bcd')


def test_a_grammar_leaves_upper_limits_open_and_holds_lower_ones() -> None:
    plan = _plan(
        OutputFormat(), constraint=Constraint(kind="json_schema", value='{"type":"string","minLength":2,"maxLength":3}')
    )
    assert plan.grammar is not None
    texts = Texts(plan.grammar.text)
    assert '"abcdef"' in texts
    assert '"a"' not in texts


def _kept(schema: dict[str, Any], text: str) -> tuple[bool, bool]:
    """Whether a plan with limits for long minimums leaves ``text`` to the engine, in its grammar and in its limits."""
    constraint = Constraint(kind="json_schema", value=json.dumps(schema))
    plan = _plan(OutputFormat(), minimums=True, constraint=constraint)
    assert plan.grammar is not None
    return text in Texts(plan.grammar.text), any(limits.minimums for limits in plan.length_limits)


def test_only_a_long_minimum_is_left_to_the_engine() -> None:
    assert _kept({"type": "string", "minLength": 5}, '"a"') == (True, True)
    assert _kept({"type": "string", "minLength": 4}, '"a"') == (False, False)
    assert _kept({"type": "string", "minLength": 40.0}, '"a"') == (True, True)
    # The engine does not read 'not', nor patterns.
    assert _kept({"type": "string", "not": {"maxLength": 5}}, '"a"') == (False, False)
    assert _kept({"type": "string", "minLength": 5, "not": {"maxLength": 6}}, '"aaaaa"') == (False, True)
    assert _kept({"type": "string", "minLength": 5, "pattern": "^[a-z]{6,}$"}, '"aaaaa"') == (False, True)


def test_the_engine_counts_for_strict_tools_only() -> None:
    parameters = '{"type":"object","properties":{"a":{"type":"string","minLength":9}},"required":["a"]}'
    for strict in (True, False):
        tools = (Tool(name="t", parameters=parameters, strict=strict),)
        plans = [
            _plan(OutputFormat(tools="hermes"), minimums=minimums, tools=tools, tool_choice="required")
            for minimums in (False, True)
        ]
        assert (plans[0].grammar != plans[1].grammar) == strict
        assert [limits.minimums for limits in plans[1].length_limits] == [True] * strict


def test_a_long_minimum_counts_as_four_for_tools_that_are_not_strict() -> None:
    texts = Texts(schema_grammar('{"type": "string", "minLength": 40, "not": {"maxLength": 50}}', strict=False))
    assert '"1234"' in texts
    assert '"123"' not in texts


LONG = {
    "properties": {"a": {"anyOf": [{"$ref": "#/$defs/long"}, {"type": "null"}]}, "b": {"type": "string"}},
    "$defs": {"long": {"minLength": 9, "maxLength": 10}},
}


def test_what_a_string_lacks() -> None:
    checker = LengthChecker([LengthLimits("", json.dumps(LONG), minimums=True)])
    found = []
    parts = ('{"', "a", '"', ":", '"', "xxx", "\\", '"', "\\ud8", "3d", "\\ude00", "xxx", "x", '"', ',"b":', '"')
    for text in parts:
        assert not checker.violates(text)
        assert checker.reader is not None
        found.append(checker.reader.lacking)
    assert found == [0, 0, 0, 9, 9, 6, 6, 5, 9, 4, 4, 1, 0, 0, 0, 0]
    counting = LengthChecker([LengthLimits("", json.dumps(LONG))])
    assert not counting.violates('{"a":"')
    assert counting.reader is not None
    assert counting.reader.lacking is None


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize(
    ("schema", "fits", "too_short"),
    [
        (
            LONG,
            ['{"a":"123456789","b":""}', '{"a":null}', '{"a":"1234567\\u00e9\\n"}'],
            ['{"a":"12345678"', '{"a":"\\u00e9"'],
        ),
        ({"items": {"minLength": 5}}, ['["12345", 1, "123456"]'], ['["12345", "1"']),
        ({"minLength": 4}, ['"a"'], []),
        ({"minLength": 5}, ["7", '"12345"'], ['""']),
        ({"additionalProperties": {"minLength": 5}}, ['{"a":"12345"}'], ['{"a":"1"']),
        ({"type": "integer", "minLength": "x"}, ["7"], []),
    ],
)
def test_a_string_that_has_ended_too_early_is_noticed(
    schema: Any, fits: list[str], too_short: list[str], size: int
) -> None:
    def violated(text: str) -> bool:
        watch = LengthChecker([LengthLimits("", json.dumps(schema), minimums=True)])
        return any(watch.violates(text[at : at + size]) for at in range(0, len(text), size))

    assert [text for text in fits if violated(text)] == []
    assert [text for text in too_short if not violated(text)] == []


UNIQUE: dict[str, Any] = {"properties": {"a": {"type": "array", "uniqueItems": True}}}


@pytest.mark.parametrize(
    ("text", "repeats"),
    [
        ('{"a":[1,2,"1",true,[1],{"b":1}]}', False),
        ('{"a":["x", "y", "x"', False),
        ('{"a":["x", "y", "x"]', True),
        ('{"a":[1,[2,2],1.0,', True),
        ('{"a":[{"b":1,"c":[2]},{"c":[2],"b":1}]', True),
        ('{"a":[]}', False),
        ('{"b":[1,1]}', False),
    ],
)
@pytest.mark.parametrize("size", [1, 3, 100])
def test_the_first_item_that_occurs_again_is_found(text: str, repeats: bool, size: int) -> None:
    assert _exceeds(UNIQUE, text, size=size) == repeats


@pytest.mark.parametrize(
    "schema",
    [
        {"patternProperties": {"^a$": {"maxLength": 2}}},
        {"if": True, "then": {"properties": {"a": {"maxLength": 2}}}},
        {"dependentSchemas": {"a": {"properties": {"a": {"maxLength": 2}}}}},
        {"unevaluatedProperties": {"maxLength": 2}},
    ],
)
def test_limits_in_conditions_and_patterns_are_found(schema: dict[str, Any]) -> None:
    assert _exceeds(schema, '{"a":"bcd"}')
    assert not _exceeds(schema, '{"a":"bc"}')


@pytest.mark.parametrize(
    ("piece", "characters"),
    [
        (b"", 0),
        (b'"', 0),
        (b'", "', 0),
        (b'abc",', 3),
        ("é🌊".encode(), 2),
        ("🌊".encode()[:2], 1),
        ("🌊".encode()[2:], 0),
        (b"\\n", 1),
        (b"\\", 1),
        (b'\\"a', 2),
        (b'\\\\"a', 1),
        (b"\\u00e9x", 2),
        (b"\\ud83d\\ude00", 2),
        (b"\\u00", 1),
    ],
)
def test_characters_of_a_token(piece: bytes, characters: int) -> None:
    assert characters_in(piece) == characters


@pytest.mark.parametrize(
    ("piece", "lengths"),
    [
        (b"abc", (None, None, None)),
        (b'"', (None, 0, None)),
        (b'""', (0, 0, 1)),
        (b'a"', (None, 1, 1)),
        (b'","', (1, 0, 2)),
        (b'\\"', (None, None, 1)),
        (b'\\n"', (None, 1, 2)),
        ("é".encode()[1:] + b'"', (None, 0, 1)),
        (b': "ab", ', (2, 2, 2)),
        (b',"a', (None, 1, 1)),
        (b'["",', (-1, 1, 1)),
        (b'":""', (1, -1, 2)),
    ],
)
def test_characters_of_a_token_before_it_closes_a_string(
    piece: bytes, lengths: tuple[int | None, int | None, int | None]
) -> None:
    assert tuple(None if length > len(piece) else length for length in closing_lengths(piece)) == lengths


def test_the_room_of_the_current_string() -> None:
    checker = LengthChecker([LengthLimits("", '{"properties":{"a":{"maxLength":3},"b":{"type":"string"}}}')])
    rooms = []
    for text in ('{"a":', '"', "x", "\\ud83d", "\\ude00", "\\n", '"', ',"b":"', "xxxx"):
        assert not checker.violates(text)
        assert checker.reader is not None
        rooms.append(checker.reader.room)
    assert rooms == [None, 3, 2, 1, 1, 0, None, None, None]
