"""The scratch pipeline on the default model's tokenizer: it takes every grammar of ours, and names what is wrong."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.parsers.formats import TOOL_FORMATS, OutputFormat, ReasoningFormatName, ToolFormatName
from shared.protocol.request import ChatRequest, Constraint, Message, Tool
from shared.runtime.settings import WorkerSettings
from tests.support.grammar_profiler import TextProfiler
from tests.support.paths import MODELS
from worker.engine.protocol import GrammarError, OutputGrammar
from worker.grammar.ebnf import literal
from worker.grammar.planner import make_plan
from worker.grammar.schema.keywords import FORMATS
from worker.grammar.service import MAX_SLOWDOWN
from worker.model.gguf_tokenizer import read_tokens
from worker.model.local import default_model

TOOLS = (
    Tool(
        name="get_weather",
        parameters='{"type":"object","properties":{"city":{"type":"string"},"unit":{"enum":["c","f"]}},'
        '"required":["city"],"additionalProperties":{"type":"integer"}}',
    ),
    Tool(name="now"),
)
PERSON = Constraint(kind="json_schema", value='{"type":"object","properties":{"age":{"type":"integer"}}}')


@pytest.fixture(scope="module")
def scratch() -> TextProfiler:
    return TextProfiler(str(default_model()))


def request(**fields: object) -> ChatRequest:
    return ChatRequest(model="m", messages=(Message(role="user", content="Hi"),), **fields)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def small() -> TextProfiler:
    """One whose vocabulary is small: it refuses the same grammars, and compiles them in a quarter of the CPU time."""
    return TextProfiler(str(MODELS / "qwen2-byte-level-bpe"))


@pytest.mark.parametrize("reasoning", [None, "think", "mistral", "granite"])
@pytest.mark.parametrize("name", [None, *TOOL_FORMATS])
def test_the_calls_of_every_format_compile(
    small: TextProfiler, name: ToolFormatName | None, reasoning: ReasoningFormatName | None
) -> None:
    output = OutputFormat(tools=name, reasoning="harmony" if name == "harmony" else reasoning)
    combinable = name is not None and TOOL_FORMATS[name].shape is not None
    made = set[OutputGrammar]()
    for prompt_end in ("", "<think>\n"):
        for parallel in (True, False):
            for fields in (
                {"tools": TOOLS},
                {"tools": TOOLS, "tool_choice": "required"},
                {"tools": TOOLS if combinable else (), "constraint": PERSON},
            ):
                plan = make_plan(request(parallel_tool_calls=parallel, **fields), output, prompt_end)
                if plan.grammar is not None:
                    made.add(plan.grammar)
    for grammar in made:
        small.compile(grammar)


@pytest.mark.parametrize("name", FORMATS)
def test_every_string_format_compiles(scratch: TextProfiler, name: str) -> None:
    schema = Constraint(kind="json_schema", value=json.dumps({"type": "string", "format": name}))
    grammar = make_plan(request(constraint=schema), OutputFormat(), "").grammar
    assert grammar is not None
    scratch.compile(grammar)


@pytest.mark.parametrize(
    ("grammar", "said"),
    [
        (OutputGrammar("start ::= 'a'"), "EBNF"),
        (OutputGrammar('main ::= "a"'), "root"),
        (OutputGrammar('{"type":"structural_tag","format":{"type":"odd"}}', tagged=True), "odd"),
        # The message of the library is cut within a character.
        (OutputGrammar('root ::= "x" \u00e9 ::= "y"'), "Unexpected character"),
    ],
)
def test_a_fault_is_named_and_the_next_grammar_is_served(
    scratch: TextProfiler, grammar: OutputGrammar, said: str
) -> None:
    with pytest.raises(GrammarError) as fault:
        scratch.compile(grammar)
    assert said in str(fault.value)
    assert ".cc" not in str(fault.value)
    scratch.compile(OutputGrammar("root ::= [a]+"))


def _content(constraint: Constraint) -> OutputGrammar:
    held = make_plan(request(constraint=constraint), OutputFormat(), "").grammar
    assert held is not None
    return held


def _schema(schema: Any) -> OutputGrammar:
    return _content(Constraint(kind="json_schema", value=json.dumps(schema)))


@pytest.fixture(scope="module")
def spelled_bytes() -> frozenset[int]:
    """The bytes that the vocabulary can spell; it has no tokens for some control characters."""
    return frozenset(piece[0] for piece in read_tokens(default_model()).pieces if len(piece) == 1)


_characters = st.characters(max_codepoint=0x17F) | st.characters(codec="utf-8") | st.sampled_from('0123456789aFfuxU\\"')


@given(text=st.text(_characters, min_size=1, max_size=8))
def test_a_literal_is_generated_exactly(scratch: TextProfiler, spelled_bytes: frozenset[int], text: str) -> None:
    text = "".join(character for character in text if set(character.encode()) <= spelled_bytes).replace("\0", "")
    if text:
        assert scratch.text(OutputGrammar(f"root ::= {literal(text)}\n"), 100) == text


@given(text=st.text(_characters, min_size=1, max_size=8))
def test_values_and_names_of_a_schema_are_generated_exactly(
    scratch: TextProfiler, spelled_bytes: frozenset[int], text: str
) -> None:
    text = "".join(character for character in text if set(character.encode()) <= spelled_bytes)
    schema = {"type": "object", "properties": {text: {"const": text}}, "required": [text]}
    assert json.loads(scratch.text(_schema(schema), 200)) == {text: text}


@pytest.mark.parametrize(
    ("constraint", "text"),
    [
        (Constraint(kind="regex", value="größe"), "größe"),
        (Constraint(kind="regex", value="[ß]e[\u00e9]a"), "ßeéa"),
        (Constraint(kind="regex", value="x[ße]{4}y"), ""),
        (Constraint(kind="grammar", value='root ::= "école" "gr\\u00f6\\u00dfe"'), "écolegröße"),
        (Constraint(kind="grammar", value='root ::= "x" [ße]{4} "y"'), ""),
        (
            Constraint(
                kind="structural_tag",
                value=json.dumps({"type": "structural_tag", "format": {"type": "const_string", "value": "größe"}}),
            ),
            "größe",
        ),
    ],
)
def test_what_clients_write_is_generated_exactly(scratch: TextProfiler, constraint: Constraint, text: str) -> None:
    for seed in range(5):
        made = scratch.text(_content(constraint), 60, seed)
        assert made == text if text else set(made) <= set("xyße")


ORDINARY: list[Any] = [
    {},
    {"type": "string"},
    {"type": "object", "properties": {"a": {"type": "string", "maxLength": 1000}}, "required": ["a"]},
    {"type": "string", "minLength": 2, "maxLength": 100_000},
    {"type": "array", "items": {"type": "string", "maxLength": 20}, "minItems": 5, "maxItems": 1000},
    {"type": "object", "properties": {f"p{index}": {"type": "string"} for index in range(20)}},
    {"enum": [f"value {index}" for index in range(300)]},
    {"type": "string", "pattern": "^[A-Z]{2,3}-[0-9]{5,9}$"},
    {"type": "string", "pattern": "foo.*bar"},
    {"$ref": "#/$defs/n", "$defs": {"n": {"properties": {"c": {"items": {"$ref": "#/$defs/n"}}, "s": {}}}}},
    *({"type": "string", "format": name} for name in FORMATS),
]


@pytest.mark.parametrize("schema", ORDINARY)
def test_an_ordinary_schema_costs_each_token_little(scratch: TextProfiler, schema: Any) -> None:
    assert scratch.slowdown(_schema(schema), MAX_SLOWDOWN) < MAX_SLOWDOWN


@pytest.mark.parametrize(
    "pattern",
    ["^[a-z]{1,64}$", "^[A-Za-z0-9_-]{1,64}$", "^.{1,200}$", "^[0-9a-f]{40}$", "^[a-z][a-z0-9_]{0,62}$", "^[^/]+$"],
)
def test_a_common_pattern_is_served_with_the_default_limits(scratch: TextProfiler, pattern: str) -> None:
    for grammar in (
        _schema({"type": "string", "pattern": pattern}),
        _content(Constraint(kind="regex", value=pattern.strip("^$"))),
    ):
        assert scratch.compile(grammar) < WorkerSettings.model_fields["grammar_seconds"].default
        assert scratch.slowdown(grammar, MAX_SLOWDOWN) < MAX_SLOWDOWN


@pytest.mark.parametrize(
    "constraint",
    [
        Constraint(kind="grammar", value='root ::= (c){0,100} "x"\nc ::= [^x] | "\\\\" [a-z]\n'),
        Constraint(kind="grammar", value="root ::= [a-z] | root root\n"),
        # Its cost grows with the text, which may end at any time.
        Constraint(kind="grammar", value='root ::= ("b" | [a-c]){0,300} "a" ("b" | [a-c]){0,300}\n'),
        Constraint(kind="json_schema", value='{"type":"string","pattern":"^([a-z]+ ?)*x$"}'),
    ],
)
def test_a_grammar_that_makes_each_token_expensive_is_noticed(scratch: TextProfiler, constraint: Constraint) -> None:
    assert scratch.slowdown(_content(constraint), MAX_SLOWDOWN) > MAX_SLOWDOWN
