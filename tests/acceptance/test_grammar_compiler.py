"""The scratch pipeline on the default model's tokenizer: it takes every grammar of ours, and names what is wrong."""

import json

import pytest

from shared.formats import TOOL_FORMATS, OutputFormat, ReasoningFormatName, ToolFormatName
from shared.request import ChatRequest, Constraint, Message, Tool
from worker.grammar.formats import FORMATS
from worker.grammar.plan import make_plan
from worker.grammar.scratch import GrammarError, ScratchPipeline
from worker.models import default_model

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
def scratch() -> ScratchPipeline:
    return ScratchPipeline(str(default_model()))


def request(**fields: object) -> ChatRequest:
    return ChatRequest(model="m", messages=(Message(role="user", content="Hi"),), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("reasoning", [None, "think", "mistral", "granite"])
@pytest.mark.parametrize("name", [None, *TOOL_FORMATS])
def test_the_calls_of_every_format_compile(
    scratch: ScratchPipeline, name: ToolFormatName | None, reasoning: ReasoningFormatName | None
) -> None:
    output = OutputFormat(tools=name, reasoning="harmony" if name == "harmony" else reasoning)
    combinable = name is not None and TOOL_FORMATS[name].shape is not None
    for prompt_end in ("", "<think>\n"):
        for parallel in (True, False):
            for fields in (
                {"tools": TOOLS},
                {"tools": TOOLS, "tool_choice": "required"},
                {"tools": TOOLS if combinable else (), "constraint": PERSON},
            ):
                plan = make_plan(request(parallel_tool_calls=parallel, **fields), output, prompt_end)
                if plan.constraint is not None:
                    scratch.compile(plan.constraint)


@pytest.mark.parametrize("name", FORMATS)
def test_every_string_format_compiles(scratch: ScratchPipeline, name: str) -> None:
    schema = Constraint(kind="json_schema", value=json.dumps({"type": "string", "format": name}))
    constraint = make_plan(request(constraint=schema), OutputFormat(), "").constraint
    assert constraint is not None
    scratch.compile(constraint)


@pytest.mark.parametrize(
    ("constraint", "said"),
    [
        (Constraint(kind="grammar", value="start ::= 'a'"), "EBNF"),
        (Constraint(kind="grammar", value='main ::= "a"'), "root"),
        (Constraint(kind="regex", value="(?=a)b"), "ookahead"),
        (Constraint(kind="structural_tag", value='{"type":"structural_tag","format":{"type":"odd"}}'), "odd"),
    ],
)
def test_a_fault_is_named_and_the_next_grammar_is_served(
    scratch: ScratchPipeline, constraint: Constraint, said: str
) -> None:
    with pytest.raises(GrammarError) as fault:
        scratch.compile(constraint)
    assert said in str(fault.value)
    assert ".cc" not in str(fault.value)
    scratch.compile(Constraint(kind="regex", value="a+"))
