"""The Responses dialect: what its bodies become, and what it refuses."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from openai.types.responses import Response, ResponseFunctionToolCall
from werkzeug.datastructures import MultiDict

from api.dialects.base.interface import Call, Choice, MessagesMissing, Usage
from api.dialects.responses import Responses
from api.dialects.responses.parse import StoredConversation, ValidatedRequest, validated_input_tokens
from api.dialects.responses.schema import ResponsesRequest
from api.responses.forms import parse_stream_query, render_input_items
from api.stored.record import StoredResponse
from shared.protocol.errors import Problem, ProblemKind, RequestRefused
from shared.protocol.request import ChatRequest, Tool
from tests.support.sdk_types import checked

TOOL: dict[str, Any] = {"type": "function", "name": "f", "description": "Does it.", "parameters": {"type": "object"}}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "42"}
USAGE = Usage(prompt_tokens=9, completion_tokens=5, cached_tokens=3, reasoning_tokens=2)
ID = "0123456789abcdef0123456789abcdef"


def parse(**fields: Any) -> ChatRequest:
    return Responses().parse(json.dumps({"model": "m", "input": "Hello"} | fields).encode())


def refusal(**fields: Any) -> tuple[int, dict[str, str | None]]:
    """Return status and error of a request that is refused."""
    body = {name: value for name, value in ({"model": "m", "input": "Hello"} | fields).items() if value is not ...}
    dialect = Responses()
    with pytest.raises(RequestRefused) as refused:
        dialect.parse(json.dumps(body).encode())
    reply = dialect.error(refused.value.problem)
    error: dict[str, str | None] = json.loads(reply.body)["error"]
    return reply.status, error


def user(text: str, **fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": text} | fields


class Indivisible(str):
    """A text that must not be read character by character."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("read character by character")


def test_a_long_text_is_not_searched_for_references() -> None:
    body = ResponsesRequest.model_construct(model="m", input=Indivisible("hello"))
    assert ValidatedRequest(body, {}, ()).references == ()


def test_unknown_tools_are_skipped_and_named() -> None:
    dialect = Responses()
    hosted = {"type": "computer"}
    namespace = {"type": "namespace", "name": "n", "tools": [hosted]}
    more = {"type": "additional_tools", "role": "developer", "tools": [TOOL | {"name": "g"}, {"type": "tool_search"}]}
    body = {"model": "m", "input": [more, user("Hi")], "tools": [{"type": "web_search"}, TOOL, hosted, namespace]}
    request = dialect.parse(json.dumps(body).encode())
    assert request.response.notes == (("x-skipped-tools", "web_search, computer, tool_search"),)
    assert [tool.name for tool in request.tools] == ["f", "g"]
    assert request.tools[0] == Tool(name="f", description="Does it.", parameters='{"type":"object"}')


CRM = {"type": "namespace", "name": "crm", "description": "Customers.", "tools": [TOOL, TOOL | {"name": "g"}]}


def test_functions_of_a_namespace_have_its_name_for_the_model_only() -> None:
    request = parse(tools=[TOOL, CRM])
    assert [(tool.name, tool.description) for tool in request.tools] == [
        ("f", "Does it."),
        ("crm__f", "Customers.\n\nDoes it."),
        ("crm__g", "Does it."),
    ]
    encoder = Responses().render(request, response_id=ID, created=7, fingerprint="")
    calls = (Call(id="c1", name="crm__g", arguments="{}"), Call(id="c2", name="f", arguments="{}"))
    document = checked(
        Response, encoder.completion([Choice(index=0, text="", calls=calls, reason="tool_calls")], USAGE)
    )
    called = [item for item in document.output if isinstance(item, ResponseFunctionToolCall)]
    assert [(item.name, item.namespace) for item in called] == [("g", "crm"), ("f", None)]
    history = [item.model_dump(exclude_none=True) for item in document.output]
    results = [OUTPUT | {"call_id": item["call_id"]} for item in history]
    _, turn, *answers = parse(input=[user("Hi"), *history, *results], tools=[TOOL, CRM]).messages
    assert [call.name for call in turn.tool_calls] == ["crm__g", "f"]
    assert [answer.name for answer in answers] == ["crm__g", "f"]


def test_a_namespace_may_end_with_the_separator_and_hold_items_of_the_input() -> None:
    more = {"type": "additional_tools", "role": "developer", "tools": [CRM | {"name": "crm__", "description": "C."}]}
    request = parse(input=[more, user("Hi")])
    assert [tool.name for tool in request.tools] == ["crm__f", "crm__g"]
    encoder = Responses().render(request, response_id=ID, created=7, fingerprint="")
    encoder.call(0, 0, "c1", "crm__f")
    assert b'"name":"f","arguments":"","namespace":"crm__"' in encoder.closing(0, "tool_calls")


def test_counts_refuse_unknown_fields_by_name() -> None:
    with pytest.raises(RequestRefused, match="'surprise'"):
        validated_input_tokens(json.dumps({"model": "m", "surprise": 1}).encode())


def test_a_body_without_input_names_its_model() -> None:
    with pytest.raises(MessagesMissing) as missing:
        Responses().parse(b'{"model": "m"}')
    assert (missing.value.model, missing.value.problem.param) == ("m", "input")
    assert refusal(input=..., temperature=...)[1]["param"] == "input"


def test_a_problem_of_the_whole_conversation_names_the_input() -> None:
    reply = Responses().error(Problem(kind=ProblemKind.CONTEXT_LENGTH, message="Too long."))
    assert json.loads(reply.body)["error"]["param"] == "input"


def test_counts_refuse_a_personality_by_name() -> None:
    with pytest.raises(RequestRefused, match="'personality' is not supported") as refused:
        validated_input_tokens(b'{"model": "m", "input": "Hello", "personality": "friendly"}')
    assert refused.value.problem.param == "personality"


RECORD = StoredResponse(id="resp_" + "0" * 32, model="m", created=7, document=b"{}", input=b"[]")
INCLUDED = [("include[]", "reasoning.encrypted_content"), ("include[]", "message.output_text.logprobs")]


def test_calls_without_an_output_are_counted() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    body = json.dumps({"model": "m", "input": [call]}).encode()
    counted = validated_input_tokens(body).request(StoredConversation(), store=False)
    assert [message.tool_calls[0].id for message in counted.messages] == ["c"]


def test_queries_may_name_what_to_include() -> None:
    query = MultiDict([*INCLUDED, ("stream", "true"), ("include_obfuscation", "false"), ("starting_after", "7")])
    assert parse_stream_query(query) == (True, 7)
    assert json.loads(render_input_items(RECORD, MultiDict([*INCLUDED, ("include", INCLUDED[0][1])])))["data"] == []


@pytest.mark.parametrize(
    ("name", "value", "param"),
    [
        ("include[]", "all", "include[0]"),
        ("include", "all", "include[0]"),
        ("include_obfuscation", "true", "include_obfuscation"),
        ("include_obfuscation", "1", "include_obfuscation"),
        ("stream", "maybe", "stream"),
        ("starting_after", "-1", "starting_after"),
        ("starting_after", "1", "starting_after"),
    ],
)
def test_a_wrong_query_of_a_response_is_named(name: str, value: str, param: str) -> None:
    with pytest.raises(RequestRefused) as refusal:
        parse_stream_query(MultiDict([(name, value)]))
    assert refusal.value.problem.param == param


@pytest.mark.parametrize("name", ["include", "limit", "order", "after"])
def test_a_wrong_query_of_input_items_is_named(name: str) -> None:
    with pytest.raises(RequestRefused) as refusal:
        render_input_items(RECORD, MultiDict([(name, "none")]))
    assert (refusal.value.problem.param or "").partition("[")[0] == name
