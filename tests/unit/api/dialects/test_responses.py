"""The Responses dialect: what its bodies become, and what it refuses."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from openai.types.responses import Response, ResponseFunctionToolCall
from werkzeug.datastructures import MultiDict

from api.dialects.base.interface import Call, Choice, MessagesMissing, Usage
from api.dialects.responses import Responses, ValidatedRequest
from api.dialects.responses.input_tokens import validated_input_tokens
from api.dialects.responses.schema import ResponsesRequest
from api.dialects.responses.stored import parse_stream_query, render_input_items
from api.stored.record import StoredResponse
from shared.protocol.errors import Problem, ProblemKind, RequestRefused
from shared.protocol.request import ChatRequest, Constraint, Image, Message, Sampling, Tool, ToolCall
from tests.support.sdk_types import checked

TOOL: dict[str, Any] = {"type": "function", "name": "f", "description": "Does it.", "parameters": {"type": "object"}}
CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "c1",
    "name": "f",
    "arguments": '{"a":1}',
    "status": "completed",
}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "42"}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
SAID = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Hi!", "annotations": [], "logprobs": []}],
}
PICTURE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low"}
USAGE = Usage(prompt_tokens=9, completion_tokens=5, cached_tokens=3, reasoning_tokens=2)
ID = "0123456789abcdef0123456789abcdef"
SCHEMA = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
FORMAT = {"type": "json_schema", "name": "s", "schema": SCHEMA, "strict": True}


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
    assert ValidatedRequest(body, {}).references == ()


def test_a_plain_request_has_the_references_defaults() -> None:
    request = parse()
    assert (request.model, request.messages) == ("m", (Message(role="user", content="Hello"),))
    assert (request.sampling, request.defaults) == (Sampling(), Sampling(temperature=1.0, top_p=1.0, top_k=0))
    assert (request.stream, request.store, request.background, request.tier) == (False, True, False, None)


@pytest.mark.parametrize(
    ("fields", "internal"),
    [
        ({"temperature": 0.5, "top_p": 0.9}, {"sampling": {"temperature": 0.5, "top_p": 0.9}}),
        ({"top_p": 0}, {"sampling": {"temperature": 0.0}}),
        ({"max_output_tokens": 5}, {"sampling": {"max_tokens": 5}}),
        ({"presence_penalty": 1, "frequency_penalty": 0.5}, {"sampling": {"presence_penalty": 1.0}}),
        ({"include": ["message.output_text.logprobs"]}, {"sampling": {"logprobs": True}}),
        ({"top_logprobs": 3}, {"sampling": {"logprobs": True, "top_logprobs": 3}}),
        ({"stream": True, "stream_options": {"include_obfuscation": False}}, {"stream": True}),
        ({"user": "u"}, {"user": "u"}),
        ({"safety_identifier": "u"}, {"user": "u"}),
        ({"service_tier": "fast"}, {"tier": "priority"}),
        ({"service_tier": "flex"}, {"tier": "flex"}),
        ({"reasoning": {"effort": "low", "summary": "auto"}}, {"template": {"reasoning_effort": "low"}}),
        ({"reasoning": {"effort": "none"}}, {"template": {"enable_thinking": False}}),
        ({"text": {"verbosity": "low"}}, {"template": {"verbosity": "low"}}),
        ({"metadata": {"a": "b"}}, {"metadata": (("a", "b"),)}),
        ({"prompt_cache_key": "k", "prompt_cache_retention": "in_memory"}, {}),
        ({"max_tool_calls": 3}, {"max_tool_calls": 3}),
        ({"truncation": "auto"}, {"truncate": True}),
        ({"truncation": "disabled", "background": False, "conversation": None, "client_metadata": {"a": "b"}}, {}),
        ({"include": ["reasoning.encrypted_content", "web_search_call.action.sources"]}, {}),
        ({"parallel_tool_calls": False}, {"parallel_tool_calls": False}),
        ({"store": False}, {"store": False}),
        ({"background": True}, {"background": True, "store": True}),
    ],
)
def test_fields_of_a_request(fields: dict[str, Any], internal: dict[str, Any]) -> None:
    request = parse(**fields)
    for name, value in internal.items():
        match name:
            case "sampling":
                assert {field: getattr(request.sampling, field) for field in value} == value
            case "template":
                assert value.items() <= json.loads(request.template_kwargs or "{}").items()
            case _:
                assert getattr(request, name) == value


def test_instructions_and_developer_items_become_one_leading_system_message() -> None:
    request = parse(
        instructions="Be brief.",
        input=[
            user("Hello"),
            {"role": "developer", "content": [{"type": "input_text", "text": "Use f."}]},
            SAID,
            {"type": "message", "role": "system", "content": "Be kind."},
            user("Bye", id="msg_9", status="completed"),
        ],
    )
    assert request.messages == (
        Message(role="system", content="Be brief.\n\nUse f.\n\nBe kind."),
        Message(role="user", content="Hello"),
        Message(role="assistant", content="Hi!"),
        Message(role="user", content="Bye"),
    )


def test_the_items_of_a_turn_become_one_message() -> None:
    request = parse(
        tools=[TOOL],
        input=[
            user("Hello"),
            THOUGHT,
            SAID,
            CALL,
            CALL | {"call_id": "c2"},
            {"role": "developer", "content": "In between."},
            OUTPUT,
            OUTPUT | {"call_id": "c2", "output": [{"type": "input_text", "text": "43"}, PICTURE]},
            user("And now?"),
        ],
    )
    calls = (ToolCall(id="c1", name="f", arguments='{"a":1}'), ToolCall(id="c2", name="f", arguments='{"a":1}'))
    assert request.messages[1:] == (
        Message(role="user", content="Hello"),
        Message(role="assistant", content="Hi!", reasoning="Hm.", tool_calls=calls),
        Message(role="tool", content="42", name="f", tool_call_id="c1"),
        Message(role="tool", content="43", name="f", tool_call_id="c2"),
        Message(
            role="user",
            content="And now?",
            images=(Image(at=0, param="input[7].output[1]", low=True, url="data:image/png;base64,AAAA"),),
        ),
    )


def test_reasoning_by_its_summary_and_calls_of_custom_tools() -> None:
    request = parse(
        input=[
            user("Hello"),
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}], "encrypted_content": None},
            {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": "x"},
            {"type": "custom_tool_call_output", "call_id": "c1", "output": "done"},
        ]
    )
    assert request.messages[1:] == (
        Message(
            role="assistant",
            reasoning="Hm.",
            tool_calls=(ToolCall(id="c1", name="patch", arguments='{"input":"x"}'),),
        ),
        Message(role="tool", content="done", name="patch", tool_call_id="c1"),
    )


def test_items_may_have_nulls_for_fields_that_they_lack() -> None:
    call = ResponseFunctionToolCall(arguments="{}", call_id="c1", name="f", type="function_call").model_dump()
    assert None in call.values()
    assert parse(input=[user("Hello"), call, OUTPUT]).messages[1].tool_calls[0].id == "c1"


def test_images_of_a_message() -> None:
    content = [{"type": "input_text", "text": "What is"}, PICTURE, {"type": "input_text", "text": "this?"}]
    (message,) = parse(input=[{"role": "user", "content": content}]).messages
    assert message.content == "What isthis?"
    assert message.images == (Image(at=7, param="input[0].content[1]", low=True, url="data:image/png;base64,AAAA"),)


def test_unknown_tools_are_skipped_and_named() -> None:
    dialect = Responses()
    custom = {"type": "custom", "name": "c"}
    namespace = {"type": "namespace", "name": "n", "tools": [custom]}
    more = {"type": "additional_tools", "role": "developer", "tools": [TOOL | {"name": "g"}, {"type": "tool_search"}]}
    body = {"model": "m", "input": [more, user("Hi")], "tools": [{"type": "web_search"}, TOOL, custom, namespace]}
    request = dialect.parse(json.dumps(body).encode())
    assert dialect.skipped_tools == ("web_search", "custom", "tool_search")
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


def test_functions_that_the_model_could_not_tell_apart_are_refused() -> None:
    """tools[].tools[].name"""
    status, error = refusal(tools=[TOOL | {"name": "crm__g"}, CRM])
    assert (status, error["param"]) == (400, "tools[1].tools[1].name")
    status, error = refusal(tools=[CRM | {"tools": [TOOL | {"defer_loading": True}]}])
    assert (status, error["param"]) == (400, "tools[0].tools[0].defer_loading")


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("none", ("none", None, ["f", "g"])),
        ("required", ("required", None, ["f", "g"])),
        ({"type": "function", "name": "f"}, ("required", "f", ["f", "g"])),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "g"}]},
            ("required", None, ["g"]),
        ),
    ],
)
def test_tool_choice(choice: Any, expected: tuple[str, str | None, list[str]]) -> None:
    request = parse(tools=[TOOL, TOOL | {"name": "g", "strict": True, "parameters": SCHEMA}], tool_choice=choice)
    assert (request.tool_choice, request.named_tool, [tool.name for tool in request.tools]) == expected


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_an_allowed_function_that_is_not_offered_is_refused(mode: str) -> None:
    """tool_choice.tools"""
    allowed = {"type": "allowed_tools", "mode": mode, "tools": [TOOL, {"type": "function", "name": "g"}]}
    status, error = refusal(tools=[TOOL], tool_choice=allowed)
    assert (status, error["param"]) == (400, "tool_choice")
    assert "'g'" in str(error["message"])
    others = [TOOL, {"type": "mcp", "server_label": "s"}, {"type": "custom", "name": "c"}]
    assert parse(tools=[TOOL], tool_choice=allowed | {"tools": others}).tools[0].name == "f"


def test_text_format_is_a_constraint() -> None:
    assert parse(text={"format": {"type": "text"}}).constraint is None
    assert parse(text={"format": {"type": "json_object"}}).constraint == Constraint(
        kind="json_object", param="text.format"
    )
    assert parse(text={"format": FORMAT}).constraint == Constraint(
        kind="json_schema", value=json.dumps(SCHEMA, separators=(",", ":")), param="text.format.schema"
    )


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"conversation": "conv_1"}, "conversation", "unsupported_parameter"),
        ({"prompt": {"id": "p"}}, "prompt", "unsupported_parameter"),
        ({"background": True, "store": False}, "background", None),
        ({"previous_response_id": "resp_1"}, "previous_response_id", "previous_response_not_found"),
        ({"reasoning": {"mode": "pro"}}, "reasoning.mode", "unsupported_value"),
        ({"reasoning": {"context": "all_turns"}}, "reasoning.context", "unsupported_value"),
        ({"service_tier": "scale"}, "service_tier", "unsupported_value"),
        ({"stream_options": {"include_obfuscation": True}}, "stream_options.include_obfuscation", None),
        ({"input": [user("a"), {"type": "web_search_call"}]}, "input[1].type", "invalid_value"),
        ({"input": [{"role": "critic", "content": "a"}]}, "input[0].role", "invalid_value"),
        ({"input": [user([{"type": "output_text", "text": "a"}])]}, "input[0].content[0].type", "invalid_value"),  # type: ignore[arg-type]
        ({"input": [user([{"type": "input_image", "file_id": "f"}])]}, "input[0].content[0].file_id", None),  # type: ignore[arg-type]
        ({"input": [user([{"type": "input_image"}])]}, "input[0].content[0].image_url", None),  # type: ignore[arg-type]
        ({"input": [user([{"type": "input_file", "file_id": "f"}])]}, "input.[0].content.[0].type", None),  # type: ignore[arg-type]
        ({"input": [user("a"), OUTPUT]}, "input[1].call_id", None),
        ({"input": [user("a"), CALL]}, "input[1]", None),
        ({"input": []}, "input", "empty_array"),
        ({"input": 7}, "input", "invalid_type"),
        ({"tools": [TOOL | {"name": "a b"}]}, "tools[0].name", "invalid_value"),
        ({"tools": [TOOL | {"strict": True}]}, "tools[0].parameters", "invalid_function_parameters"),
        ({"tools": [TOOL | {"defer_loading": True}]}, "tools[0].defer_loading", "unsupported_parameter"),
        ({"tools": [{"name": "f"}]}, "tools[0].type", "missing_required_parameter"),
        ({"tools": [{"type": "a\nb"}]}, "tools[0].type", "invalid_value"),
        ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice", None),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "g"}}, "tool_choice", None),
        ({"tools": [TOOL], "tool_choice": {"type": "web_search"}}, "tool_choice.type", "invalid_value"),
        ({"text": {"format": FORMAT | {"schema": {"type": "object"}}}}, "text.format.schema", "invalid_json_schema"),
        ({"model": ""}, None, None),
        ({"max_output_tokens": 0}, "max_output_tokens", "integer_below_min_value"),
        ({"prompt_cache_options": {"prewarm": True}}, "prompt_cache_options", "unsupported_parameter"),
        ({"prompt_cache_options": {"comparison_response_id": "r"}}, "prompt_cache_options", "unsupported_parameter"),
    ],
)
def test_what_is_refused_names_its_field(fields: dict[str, Any], param: str | None, code: str | None) -> None:
    status, error = refusal(**fields)
    assert (status, error["type"], error["param"]) == (400, "invalid_request_error", param)
    if code is not None:
        assert error["code"] == code


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("surprise", "Unknown parameter: 'surprise'."),
        ("response_format", "Unsupported parameter: 'response_format'. In the Responses API, this parameter has moved"),
        ("max_tokens", "Unsupported parameter: 'max_tokens'. In the Responses API, this parameter has moved to 'max_o"),
    ],
)
def test_fields_of_other_apis_are_refused_by_name(field: str, message: str) -> None:
    status, error = refusal(**{field: 5})
    assert (status, error["param"]) == (400, field)
    assert str(error["message"]).startswith(message)
    with pytest.raises(RequestRefused, match="'surprise'"):
        validated_input_tokens(json.dumps({"model": "m", "surprise": 1}).encode())


def test_a_reference_to_an_unknown_item_is_a_404_in_words_that_clients_recognise() -> None:
    status, error = refusal(input=[{"id": "msg_1"}])
    assert (status, error["type"], error["param"]) == (404, "invalid_request_error", "input[0].id")
    assert "Item with id 'msg_1' not found. Items are not persisted when `store` is set to false." in str(error)


def test_a_body_without_input_names_its_model() -> None:
    with pytest.raises(MessagesMissing) as missing:
        Responses().parse(b'{"model": "m"}')
    assert (missing.value.model, missing.value.problem.param) == ("m", "input")
    assert refusal(input=..., temperature=...)[1]["param"] == "input"


def test_a_problem_of_the_whole_conversation_names_the_input() -> None:
    reply = Responses().error(Problem(kind=ProblemKind.CONTEXT_LENGTH, message="Too long."))
    assert json.loads(reply.body)["error"]["param"] == "input"


def test_items_and_options_that_mean_nothing_here() -> None:
    call = CALL | {"async": False, "namespace": None, "caller": {"type": "direct"}}
    request = parse(input=[call, OUTPUT], prompt_cache_options={"mode": "implicit", "prewarm": False})
    assert [message.role for message in request.messages] == ["assistant", "tool"]


def test_counts_refuse_a_personality_by_name() -> None:
    with pytest.raises(RequestRefused, match="'personality' is not supported") as refused:
        validated_input_tokens(b'{"model": "m", "input": "Hello", "personality": "friendly"}')
    assert refused.value.problem.param == "personality"


RECORD = StoredResponse(id="resp_" + "0" * 32, model="m", created=7, document=b"{}", input=b"[]")
INCLUDED = [("include[]", "reasoning.encrypted_content"), ("include[]", "message.output_text.logprobs")]


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
