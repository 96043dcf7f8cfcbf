"""Calls of custom tools in answers of OpenAI's two APIs: the same whole, streamed and read by the official SDK."""

import json
from typing import Any

from openai._streaming import SSEDecoder
from openai.types.chat import ChatCompletion, ChatCompletionMessageCustomToolCall
from openai.types.responses import (
    Response,
    ResponseCustomToolCall,
    ResponseCustomToolCallInputDeltaEvent,
    ResponseCustomToolCallInputDoneEvent,
)

from api.dialects.base.interface import Call, Choice, Dialect, ResponseEncoder, Usage
from api.dialects.openai import OpenAI
from api.dialects.responses import Responses
from tests.support.sdk_types import checked

USAGE = Usage(prompt_tokens=9, completion_tokens=5)
CALLS = (Call(id="c1", name="c", arguments='a "b"\n'), Call(id="c2", name="f", arguments="{}"))
CHOICE = Choice(index=0, text="", calls=CALLS, reason="tool_calls")


def encoder_of(dialect: Dialect, body: dict[str, Any]) -> ResponseEncoder:
    request = dialect.parse(json.dumps({"model": "m"} | body).encode())
    return dialect.render(request, response_id="0" * 32, created=7, fingerprint="fp")


def chat() -> ResponseEncoder:
    tools = [{"type": "custom", "custom": {"name": "c"}}, {"type": "function", "function": {"name": "f"}}]
    return encoder_of(OpenAI(), {"messages": [{"role": "user", "content": "Hi"}], "tools": tools})


def responses(**fields: Any) -> ResponseEncoder:
    tools = [{"type": "custom", "name": "c"}, {"type": "function", "name": "f"}]
    return encoder_of(Responses(), {"input": "Hi", "tools": tools} | fields)


def streamed(encoder: ResponseEncoder, name: str = "c") -> list[Any]:
    pieces = [encoder.opening(0), encoder.call(0, 0, "c1", name), encoder.arguments(0, 0, "a ")]
    pieces += [encoder.arguments(0, 0, '"b"\n'), encoder.call(0, 1, "c2", "f"), encoder.arguments(0, 1, "{}")]
    pieces += [encoder.closing(0, "tool_calls"), encoder.usage(USAGE)]
    return [event.json() for event in SSEDecoder().iter_bytes(iter([b"".join(pieces)]))]


def test_a_chat() -> None:
    answer = checked(ChatCompletion, chat().completion([CHOICE], USAGE))
    calls = answer.choices[0].message.tool_calls
    assert calls is not None
    custom, function = calls
    assert isinstance(custom, ChatCompletionMessageCustomToolCall)
    assert (custom.id, custom.custom.name, custom.custom.input) == ("c1", "c", 'a "b"\n')
    assert function.type == "function"


def test_a_streamed_chat() -> None:
    deltas = [call for event in streamed(chat()) for call in event["choices"][0]["delta"].get("tool_calls", ())]
    assert deltas == [
        {"index": 0, "id": "c1", "type": "custom", "custom": {"name": "c", "input": ""}},
        {"index": 0, "custom": {"input": "a "}},
        {"index": 0, "custom": {"input": '"b"\n'}},
        {"index": 1, "id": "c2", "type": "function", "function": {"name": "f", "arguments": ""}},
        {"index": 1, "function": {"arguments": "{}"}},
    ]


def test_a_response() -> None:
    # The SDK's type of an output item lacks the status, which the reference's examples and its lists of items have.
    answer = Response.model_validate_json(responses().completion([CHOICE], USAGE))
    custom, function = answer.output
    assert isinstance(custom, ResponseCustomToolCall)
    assert (custom.name, custom.input, custom.namespace) == ("c", 'a "b"\n', None)
    assert str(custom.id).startswith("ctc_")
    assert function.type == "function_call"


def test_a_streamed_response() -> None:
    added, *deltas, done, ended = (event for event in streamed(responses()) if "custom" in json.dumps(event)[:60] or
                                   event.get("item", {}).get("type") == "custom_tool_call")  # fmt: skip
    assert (added["type"], added["item"]["input"]) == ("response.output_item.added", "")
    read = [ResponseCustomToolCallInputDeltaEvent.model_validate(delta, strict=True) for delta in deltas]
    assert "".join(delta.delta for delta in read) == 'a "b"\n'
    assert ResponseCustomToolCallInputDoneEvent.model_validate(done, strict=True).input == 'a "b"\n'
    assert ended["item"] == added["item"] | {"status": "completed", "input": 'a "b"\n'}


def test_a_custom_tool_of_a_namespace() -> None:
    tools = [{"type": "namespace", "name": "n", "tools": [{"type": "custom", "name": "c"}]}]
    items = [event["item"] for event in streamed(responses(tools=tools), "n__c") if "item" in event]
    assert (items[0]["type"], items[0]["name"], items[0]["namespace"]) == ("custom_tool_call", "c", "n")
