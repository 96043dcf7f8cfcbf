"""OpenAI's Responses API by its SDK, through a simulated fleet; all that comes is strictly typed."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types.responses import Response

from tests.support.fleet import Fleet
from tests.support.sdk_types import rechecked

TOOL: dict[str, Any] = {"type": "function", "name": "f", "description": "Does it.", "parameters": {"type": "object"}}
CALL = 'Well.<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'


@pytest.fixture
def client(session_fleet: Fleet) -> Iterator[openai.OpenAI]:
    with session_fleet.client() as opened:
        yield opened


def respond(client: openai.OpenAI, **fields: Any) -> Response:
    response: Response = client.responses.create(model="sim", **({"input": "hello"} | fields))
    return rechecked(response)


def stream(client: openai.OpenAI, **fields: Any) -> list[Any]:
    events = [
        rechecked(event) for event in client.responses.create(model="sim", stream=True, **({"input": "hello"} | fields))
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    return events


def test_a_response_whole_and_streamed(client: openai.OpenAI) -> None:
    whole = respond(client, max_output_tokens=12, instructions="Be brief.")
    assert (whole.status, whole.model, whole.instructions) == ("incomplete", "sim", "Be brief.")
    assert whole.usage is not None
    assert whole.usage.output_tokens == 12
    events = stream(client, max_output_tokens=12, instructions="Be brief.")
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == whole.output_text
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.output_text == whole.output_text
    assert events[-1].response.usage.output_tokens == 12


def test_function_calls_and_their_results(client: openai.OpenAI) -> None:
    whole = respond(client, input=f"[[say {CALL}]]", tools=[TOOL])
    text, call = whole.output
    assert (text.type, call.type) == ("message", "function_call")
    assert call.type == "function_call"
    assert (call.name, json.loads(call.arguments), call.status) == ("f", {"a": 1}, "completed")
    streamed = stream(client, input=f"[[say {CALL}]]", tools=[TOOL])[-1].response
    assert [item.type for item in streamed.output] == ["message", "function_call"]
    history = [item.model_dump(exclude_none=True) for item in whole.output]
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "42"}
    answered = respond(
        client, input=[{"role": "user", "content": "hello"}, *history, result], tools=[TOOL], max_output_tokens=3
    )
    assert answered.status == "incomplete"


def test_reasoning(client: openai.OpenAI) -> None:
    said = "[[say <think>Hm.</think>Hello]]"
    item, message = respond(client, input=said, reasoning={"effort": "low"}).output
    assert item.type == "reasoning"
    assert [part.text for part in item.content or ()] == ["Hm."]
    assert message.type == "message"
    events = stream(client, input=said, reasoning={"effort": "low", "summary": "auto"})
    summary = "".join(event.delta for event in events if event.type == "response.reasoning_summary_text.delta")
    assert summary == "Hm."
    assert events[-1].response.usage.output_tokens_details.reasoning_tokens > 0


def test_tools_that_nobody_here_runs_are_named_in_a_header(session_fleet: Fleet) -> None:
    body = {
        "model": "sim",
        "input": "hello",
        "max_output_tokens": 1,
        "tools": [{"type": "web_search"}, {"type": "custom", "name": "patch"}],
    }
    status, headers, _ = session_fleet.request("POST", "/v1/responses", json.dumps(body))
    assert (status, headers["x-skipped-tools"]) == (200, "web_search, custom")


def test_requests_that_fail(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        client.responses.create(model="none", input="hello")
    with pytest.raises(openai.BadRequestError, match="maximum context length") as refused:
        client.responses.create(model="sim", input="word " * 20_000)
    assert refused.value.param == "input"
    with pytest.raises(openai.InternalServerError):
        client.responses.create(model="sim", input="[[exhaust at 3]]", max_output_tokens=9)
    failed = stream(client, input="[[exhaust at 3]]", max_output_tokens=9)[-1]
    assert (failed.type, failed.response.status, failed.response.error.code) == (
        "response.failed",
        "failed",
        "server_error",
    )


def test_a_session_of_codex(client: openai.OpenAI) -> None:
    """The twelve fields that Codex sends, with its tools and interleaved developer messages."""
    request: dict[str, Any] = {
        "instructions": "You are a coding agent.",
        "input": [
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Sandbox: on."}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "<environment_context/>"}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": f"[[say {CALL}]]"}]},
        ],
        "tools": [
            TOOL | {"strict": False},
            {"type": "custom", "name": "apply_patch", "format": {"type": "grammar", "syntax": "lark"}},
            {"type": "web_search", "external_web_access": False},
            {"type": "namespace", "name": "mcp", "description": "More.", "tools": [TOOL]},
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "0199a213-81c0-7800-8aa1-bbab2a035a53",
        "text": {"verbosity": "low"},
    }
    for turn in range(3):
        events = stream(client, **request)
        done = [event.item for event in events if event.type == "response.output_item.done"]
        (call,) = (item for item in done if item.type == "function_call")
        assert events[-1].type == "response.completed"
        request["input"] += [item.model_dump(exclude_none=True) for item in done]
        request["input"] += [
            {"type": "function_call_output", "call_id": call.call_id, "output": f"Output {turn}."},
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": f"Turn {turn}."}]},
        ]
