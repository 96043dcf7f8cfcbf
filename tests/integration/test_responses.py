"""OpenAI's Responses API by its SDK, through a simulated fleet; all that comes is strictly typed."""

import json
import re
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types.responses import Response

from tests.support import apply_patch
from tests.support.fleet import Fleet
from tests.support.sdk_types import rechecked

TOOL: dict[str, Any] = {"type": "function", "name": "f", "description": "Does it.", "parameters": {"type": "object"}}
CALL = 'Well.<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'


@pytest.fixture
def client(session_fleet: Fleet) -> Iterator[openai.OpenAI]:
    with session_fleet.client() as opened:
        yield opened


def respond(client: openai.OpenAI, **fields: Any) -> Response:
    sent: Any = {"input": "hello", "temperature": 0} | fields
    response: Response = client.responses.create(model="sim", **sent)
    return rechecked(response)


def stream(client: openai.OpenAI, **fields: Any) -> list[Any]:
    sent: Any = {"input": "hello", "temperature": 0} | fields
    events = [rechecked(event) for event in client.responses.create(model="sim", stream=True, **sent)]
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


def test_a_truncated_conversation(client: openai.OpenAI) -> None:
    (model,) = client.models.list().data
    limit = model.model_dump()["max_model_len"]
    first = respond(client, input="x" * (limit - 100), max_output_tokens=5)
    asked: Any = {"previous_response_id": first.id, "instructions": "Be brief.", "max_output_tokens": 100}
    with pytest.raises(openai.BadRequestError, match="context length"):
        respond(client, input="y" * 100, **asked)
    second = respond(client, input="y" * 100, truncation="auto", **asked)
    assert (second.truncation, second.status) == ("auto", "completed")
    assert second.usage is not None
    assert 100 < second.usage.input_tokens < 200
    assert len(client.responses.input_items.list(second.id).data) == 1
    with pytest.raises(openai.BadRequestError, match="context length"):
        respond(client, input="z" * limit, truncation="auto", **asked)


def test_the_tokens_of_an_input_are_counted(client: openai.OpenAI) -> None:
    first = respond(client, instructions="Be brief.", max_output_tokens=3)
    assert first.usage is not None
    counted = rechecked(client.responses.input_tokens.count(model="sim", input="hello", instructions="Be brief."))
    assert counted.input_tokens == first.usage.input_tokens
    longer = client.responses.input_tokens.count(model="sim", previous_response_id=first.id, instructions="Be brief.")
    assert longer.input_tokens > counted.input_tokens
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.responses.input_tokens.count(model="sim", input="a", extra_body={"temperature": 1})


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
            apply_patch.TOOL,
            {"type": "web_search", "external_web_access": False},
            {"type": "namespace", "name": "mcp__city", "description": "More.", "tools": [TOOL]},
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


def test_a_run_of_the_agents_sdk(client: openai.OpenAI) -> None:
    """What the OpenAI Agents SDK 0.24 sends: a strict function, a hosted tool, and the items of its run."""
    schema = {"properties": {"a": {"type": "integer"}}, "required": ["a"], "type": "object"}
    tools = [
        TOOL | {"parameters": schema | {"additionalProperties": False}, "strict": True},
        {"type": "web_search", "filters": None, "user_location": None, "search_context_size": "medium"},
    ]
    said = [{"content": f"[[say {CALL}]]", "role": "user"}]
    fields: dict[str, Any] = {"include": [], "instructions": "Be brief.", "tools": tools}
    for response in (respond(client, input=said, **fields), stream(client, input=said, **fields)[-1].response):
        called = [item.model_dump(exclude_unset=True) for item in response.output]
        result = {"call_id": called[-1]["call_id"], "output": "result 1", "type": "function_call_output"}
        again = respond(client, input=[*said, *called, result, *said], temperature=0.3, **fields)
        assert [item.type for item in again.output] == ["message", "function_call"]
    strict = schema | {"additionalProperties": False}
    form = {"type": "json_schema", "name": "final_output", "strict": True, "schema": strict}
    answered = respond(client, input='[[say {"a": 1}]]', text={"format": form}, tools=[], include=[])
    assert json.loads(answered.output_text) == {"a": 1}


def listed(client: openai.OpenAI, response_id: str, **query: Any) -> list[dict[str, Any]]:
    return [
        rechecked(item).model_dump(exclude_none=True)
        for item in client.responses.input_items.list(response_id, **query)
    ]


def texts(items: list[dict[str, Any]]) -> list[str]:
    return [item["content"][0]["text"] for item in items if item["type"] == "message"]


def test_a_stored_response(client: openai.OpenAI) -> None:
    created = respond(client, max_output_tokens=5, metadata={"topic": "sea"})
    assert client.responses.retrieve(created.id) == created
    streamed = stream(client, max_output_tokens=5)[-1].response
    assert client.responses.retrieve(streamed.id) == streamed
    unstored = respond(client, max_output_tokens=5, store=False)
    for unknown in (unstored.id, "resp_1"):
        with pytest.raises(openai.NotFoundError, match="not found"):
            client.responses.retrieve(unknown)
    client.responses.delete(created.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(created.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.delete(created.id)
    with pytest.raises(openai.BadRequestError, match="synchronous"):
        client.responses.cancel(streamed.id)
    with pytest.raises(openai.BadRequestError, match="Only background responses"):
        client.responses.retrieve(streamed.id, stream=True)


def test_a_conversation_by_previous_response_id(client: openai.OpenAI) -> None:
    first = respond(client, input="one", instructions="Be brief.", max_output_tokens=3)
    second = respond(client, input="two", previous_response_id=first.id, max_output_tokens=3)
    third = respond(client, input="three", previous_response_id=second.id, max_output_tokens=3)
    # The simulated engine answers with the same text to the same prompt.
    whole = respond(
        client,
        input=[
            {"role": "user", "content": "one"},
            first.output[0].model_dump(exclude_none=True),
            {"role": "user", "content": "two"},
            second.output[0].model_dump(exclude_none=True),
            {"role": "user", "content": "three"},
        ],
        max_output_tokens=3,
    )
    assert third.output_text == whole.output_text
    assert third.previous_response_id == second.id
    assert third.usage == whole.usage or (
        third.usage and whole.usage and third.usage.input_tokens == whole.usage.input_tokens
    )
    assert third.instructions is None
    assert texts(listed(client, third.id)) == ["three"]
    for unknown in ("resp_1", f"resp_{'0' * 32}"):
        with pytest.raises(openai.BadRequestError) as refused:
            respond(client, previous_response_id=unknown)
        assert (refused.value.code, refused.value.param) == ("previous_response_not_found", "previous_response_id")


def test_calls_of_the_previous_response_are_answered(client: openai.OpenAI) -> None:
    called = respond(client, input=f"[[say {CALL}]]", tools=[TOOL])
    with pytest.raises(openai.BadRequestError, match="No tool output found"):
        respond(client, previous_response_id=called.id, tools=[TOOL])
    call = called.output[1]
    assert call.type == "function_call"
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "42"}
    answered = respond(client, input=[result], previous_response_id=called.id, tools=[TOOL], max_output_tokens=3)
    assert answered.status == "incomplete"


def test_items_by_reference(client: openai.OpenAI) -> None:
    first = respond(client, input="one", max_output_tokens=3)
    sent = [
        {"role": "user", "content": "one"},
        {"type": "item_reference", "id": first.output[0].id},
        {"role": "user", "content": "two"},
    ]
    by_reference = respond(client, input=sent, max_output_tokens=3)
    sent[1] = first.output[0].model_dump(exclude_none=True)
    assert by_reference.output_text == respond(client, input=sent, max_output_tokens=3).output_text
    assert texts(listed(client, by_reference.id, order="asc"))[1] == first.output_text


def until_ended(fleet: Fleet, client: openai.OpenAI, response_id: str) -> Response:
    fleet.until(lambda: client.responses.retrieve(response_id).status not in ("queued", "in_progress"), "the end")
    return rechecked(client.responses.retrieve(response_id))


def test_a_background_response_is_polled(session_fleet: Fleet, client: openai.OpenAI) -> None:
    whole = respond(client, max_output_tokens=200)
    started = respond(client, max_output_tokens=200, background=True)
    assert (started.status, started.output, started.background) == ("queued", [], True)
    session_fleet.until(lambda: client.responses.retrieve(started.id).status != "queued", "the start")
    ended = until_ended(session_fleet, client, started.id)
    assert (ended.status, ended.output_text, ended.created_at) == (whole.status, whole.output_text, started.created_at)
    assert client.responses.cancel(started.id) == ended
    followed = respond(client, previous_response_id=started.id, max_output_tokens=1)
    assert followed.status == "incomplete"


def test_a_background_response_that_fails(session_fleet: Fleet, client: openai.OpenAI) -> None:
    started = respond(client, input="[[exhaust at 3]]", background=True)
    failed = until_ended(session_fleet, client, started.id)
    assert failed.status == "failed"
    assert failed.error is not None
    assert failed.error.code == "server_error"
    too_long = respond(client, input="word " * 20_000, background=True)
    refused = until_ended(session_fleet, client, too_long.id)
    assert refused.error is not None
    assert (refused.status, refused.error.code) == ("failed", "invalid_prompt")
    types = [event.type for event in client.responses.retrieve(too_long.id, stream=True)]
    assert types == ["response.created", "response.queued", "response.failed"]


def test_a_background_response_is_cancelled(session_fleet: Fleet, client: openai.OpenAI) -> None:
    events: Any = client.responses.create(model="sim", input="[[tokens 6000]]", background=True, stream=True)
    response_id = next(events).response.id
    next(event for event in events if event.type == "response.output_text.delta")
    with pytest.raises(openai.BadRequestError, match="still in progress"):
        respond(client, previous_response_id=response_id)
    cancelled = rechecked(client.responses.cancel(response_id))
    assert cancelled.status == "cancelled"
    assert client.responses.cancel(response_id) == client.responses.retrieve(response_id) == cancelled
    *_, last = events
    assert (last.type, last.response.status) == ("response.incomplete", "cancelled")
    session_fleet.until(lambda: sum(worker.get("used", 0) for worker in session_fleet.workers()) == 0, "a free slot")
    deleted = respond(client, input="[[tokens 6000]]", background=True)
    client.responses.delete(deleted.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(deleted.id)
    session_fleet.until(lambda: sum(worker.get("used", 0) for worker in session_fleet.workers()) == 0, "a free slot")


def test_a_cancelled_response_counts_as_cancelled(empty_fleet: Fleet) -> None:
    """Counted as ``answer_lost``, it fed an alert."""
    empty_fleet.worker("--engine", "simulated", "--model", "sim", "--max-batch", "1")
    empty_fleet.api()

    def outcomes() -> dict[str, float]:
        page = empty_fleet.request("GET", "/metrics")[2].decode()
        found = re.findall(r'^vinoqueue_requests_total\{model="sim",outcome="(\w+)"\} (\S+)$', page, re.MULTILINE)
        return {outcome: float(count) for outcome, count in found if float(count)}

    with empty_fleet.client() as client:
        for number, end in enumerate((client.responses.cancel, client.responses.delete), 1):
            running, waiting = (respond(client, input="[[tokens 6000]]", background=True) for _ in range(2))
            empty_fleet.until(lambda: client.responses.retrieve(running.id).status == "in_progress", "the start")  # noqa: B023
            for response in (waiting, running):
                end(response.id)
            empty_fleet.until(lambda: sum(outcomes().values()) == 2 * number, "both requests to end")  # noqa: B023
            assert outcomes() == {"cancelled": 2 * number}


def test_the_model_servers_responses(session_fleet: Fleet) -> None:
    body = {"model": "sim", "input": "hello", "max_output_tokens": 3, "top_k": 5, "tools": [{"type": "web_search"}]}
    status, headers, answer = session_fleet.request("POST", "/v3/responses", json.dumps(body))
    assert (status, headers["x-skipped-tools"], json.loads(answer)["store"]) == (200, "web_search", False)
    _, _, streamed = session_fleet.request("POST", "/v3/responses", json.dumps(body | {"stream": True}))
    *_, last, done = streamed.strip().split(b"\n\n")
    assert (last.partition(b"\n")[0], done) == (b"event: response.incomplete", b"data: [DONE]")


def test_an_upgrade_to_a_websocket_is_refused_with_426(session_fleet: Fleet) -> None:
    """Codex then uses HTTP."""
    upgrade = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
    status, headers, body = session_fleet.request("GET", "/v1/responses", headers=upgrade)
    assert (status, headers["allow"]) == (426, "OPTIONS, POST")
    assert json.loads(body)["error"]["message"].startswith("Not allowed to GET on /v1/responses")
    assert session_fleet.request("GET", "/v1/responses")[0] == 405
