"""Custom tools through OpenAI's SDK: Codex's ``apply_patch`` with its Lark grammar, by the default model."""

import re
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessageCustomToolCall
from openai.types.responses import ResponseCustomToolCall

from tests.acceptance.conftest import MODEL
from tests.support.apply_patch import CHAT_TOOL, TOOL
from tests.support.fleet import Fleet

ASKED = "Create the file hello.txt with the line Hello."
BEGIN = re.compile(r"\*\*\* Begin Patch\n\*\*\* (Add File: .|Delete File: .|Update File: .)")
WHOLE = re.compile(BEGIN.pattern + r".*\n\*\*\* End Patch\n?", re.DOTALL)


@pytest.fixture
def client(real_fleet: Fleet) -> Iterator[openai.OpenAI]:
    with real_fleet.client() as opened:
        yield opened


def is_patch(text: str, finished: bool) -> bool:
    """Whether the text is a patch, or the start of one that the length limit has cut."""
    return (WHOLE if finished else BEGIN).match(text) is not None


def test_a_patch_by_the_responses_api(client: openai.OpenAI) -> None:
    asked: Any = {"model": MODEL, "input": ASKED, "tools": [TOOL], "max_output_tokens": 60}
    chosen: Any = {"tool_choice": {"type": "custom", "name": "apply_patch"}, "temperature": 0}
    answer = client.responses.create(**asked, **chosen)
    (call,) = answer.output
    assert isinstance(call, ResponseCustomToolCall)
    assert is_patch(call.input, answer.status == "completed"), call.input
    with client.responses.stream(**asked, **chosen) as stream:
        deltas = "".join(event.delta for event in stream if event.type == "response.custom_tool_call_input.delta")
    assert deltas == call.input
    history = [{"role": "user", "content": ASKED}, call.model_dump(exclude_none=True)]
    result = {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "Done."}
    assert client.responses.create(**asked | {"input": [*history, result]}).status in ("completed", "incomplete")


def test_a_patch_by_a_chat(client: openai.OpenAI) -> None:
    asked: Any = {"model": MODEL, "tools": [CHAT_TOOL], "max_tokens": 60, "temperature": 0}
    messages: list[Any] = [{"role": "user", "content": ASKED}]
    chosen: Any = {"tool_choice": {"type": "custom", "custom": {"name": "apply_patch"}}}
    answer = client.chat.completions.create(messages=messages, **asked, **chosen).choices[0]
    (call,) = answer.message.tool_calls or [None]
    assert isinstance(call, ChatCompletionMessageCustomToolCall)
    assert is_patch(call.custom.input, answer.finish_reason == "tool_calls"), call.custom.input
    stream = client.chat.completions.create(messages=messages, stream=True, **asked, **chosen)
    deltas = [delta for chunk in stream for delta in chunk.choices[0].delta.tool_calls or ()]
    assert "".join(delta.model_dump()["custom"]["input"] for delta in deltas) == call.custom.input
    messages += [answer.message, {"role": "tool", "tool_call_id": call.id, "content": "Done."}]
    assert client.chat.completions.create(messages=messages, **asked).choices[0].finish_reason


@pytest.mark.parametrize(
    ("grammar", "words"),
    [
        ({"syntax": "lark", "definition": 'start: "a" b'}, "line 1: 'b' is not defined"),
        ({"syntax": "regex", "definition": "(?=a)"}, "look ahead"),
    ],
)
def test_a_grammar_that_cannot_be_served(client: openai.OpenAI, grammar: dict[str, str], words: str) -> None:
    tool = TOOL | {"format": {"type": "grammar"} | grammar}
    with pytest.raises(openai.BadRequestError, match=re.escape(words)) as refused:
        client.responses.create(model=MODEL, input=ASKED, tools=[tool])  # type: ignore[list-item]
    assert refused.value.param == "tools[0].format.definition"
