"""What valid bodies become, and what is refused because it is not served."""

from typing import Any, get_type_hints

import msgspec
import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

from api.dialects.base.unsupported import refused_fields
from api.dialects.openai.parse import DEFAULTS
from api.dialects.openai.schema import ChatCompletionRequest
from shared.protocol.request import ChatRequest, Constraint, Image, Message, Sampling, Tool, ToolCall
from tests.unit.api.dialects.bodies import USER, body, error_of, parse

SERVED = {
    "frequency_penalty",
    "function_call",
    "functions",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "messages",
    "metadata",
    "model",
    "n",
    "parallel_tool_calls",
    "presence_penalty",
    "prompt_cache_key",
    "reasoning_effort",
    "response_format",
    "safety_identifier",
    "seed",
    "stop",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "user",
    "verbosity",
}
SCHEMA: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
FUNCTION = {"type": "function", "function": {"name": "f", "parameters": SCHEMA, "strict": True}}
OTHER = {"type": "function", "function": {"name": "g", "description": "Gee."}}
CUSTOM = {"type": "custom", "custom": {"name": "c", "format": {"type": "text"}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TEXT = {"type": "text", "text": ""}
TOOL = Tool(name="f", parameters='{"type":"object","properties":{},"additionalProperties":false}', strict=True)
OTHER_TOOL = Tool(name="g", description="Gee.")
FUNCTIONS = {"tools": (OTHER_TOOL,), "functions_form": True, "parallel_tool_calls": False}
ANY_OBJECT = Constraint(kind="json_object")
LOW_EFFORT = '{"reasoning_effort":"low","verbosity":"high"}'
NO_EFFORT = '{"reasoning_effort":"none","enable_thinking":false,"thinking":false}'


def test_a_plain_request() -> None:
    assert parse() == ChatRequest(model="m", messages=(Message(role="user", content="Hello"),), defaults=DEFAULTS)


def test_every_served_field() -> None:
    request = parse(
        messages=[
            {"role": "system", "content": "Be kind."},
            {"role": "developer", "content": [{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}]},
            USER | {"name": "Ann"},
            {"role": "assistant", "content": None, "refusal": None} | {"content": "Hi"},
        ],
        stream=True,
        stream_options={"include_usage": True, "include_obfuscation": False},
        max_completion_tokens=7,
        temperature=0,
        top_p=0.5,
        stop=["a", "b", "c", "d"],
        seed=-5,
        user="me",
        n=1,
    )
    assert request == ChatRequest(
        model="m",
        messages=(
            Message(role="system", content="Be kind."),
            Message(role="developer", content="Be\nbrief."),
            Message(role="user", content="Hello", name="Ann"),
            Message(role="assistant", content="Hi"),
        ),
        sampling=Sampling(max_tokens=7, temperature=0.0, top_p=0.5, stop=("a", "b", "c", "d"), seed=-5),
        defaults=DEFAULTS,
        stream=True,
        include_usage=True,
        user="me",
    )


def test_one_stop_string_and_the_older_token_limit() -> None:
    assert parse(stop="x", max_tokens=3).sampling == Sampling(stop=("x",), max_tokens=3)


def test_null_means_left_out_where_the_reference_says_so() -> None:
    nullable = (
        "audio frequency_penalty logit_bias logprobs max_completion_tokens max_tokens metadata modalities moderation n "
        "prediction presence_penalty prompt_cache_key prompt_cache_retention reasoning_effort safety_identifier seed "
        "service_tier stop store stream stream_options temperature top_logprobs top_p verbosity"
    )
    assert parse(**dict.fromkeys(nullable.split())) == parse()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 1),
        ("logprobs", False),
        ("logit_bias", {}),
        ("modalities", ["text"]),
        ("prompt_cache_key", "k"),
        ("prompt_cache_options", {"mode": "implicit"}),
        ("prompt_cache_retention", "in_memory"),
        ("response_format", {"type": "text"}),
        ("safety_identifier", "s"),
        ("store", False),
    ],
)
def test_a_value_that_asks_for_nothing_passes(field: str, value: Any) -> None:
    assert parse(**{field: value}) == parse()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"frequency_penalty": 0, "presence_penalty": -2}, Sampling(frequency_penalty=0.0, presence_penalty=-2.0)),
        ({"logprobs": True}, Sampling(logprobs=True)),
        ({"logprobs": True, "top_logprobs": 0}, Sampling(logprobs=True)),
        ({"logprobs": True, "top_logprobs": 20}, Sampling(logprobs=True, top_logprobs=20)),
        ({"logit_bias": {"5": -100, "50256": 3}}, Sampling(logit_bias=((5, -100.0), (50256, 3.0)))),
        ({"temperature": 0.7, "top_p": 0}, Sampling(temperature=0.0)),
    ],
)
def test_sampling(fields: dict[str, Any], expected: Sampling) -> None:
    assert parse(**fields).sampling == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"n": 128}, {"n": 128}),
        ({"service_tier": "auto"}, {"tier": "auto"}),
        ({"service_tier": "flex"}, {"tier": "flex"}),
        ({"service_tier": "fast"}, {"tier": "priority"}),
        ({"store": True, "metadata": {"a": "b", "c": ""}}, {"store": True, "metadata": (("a", "b"), ("c", ""))}),
        ({"stream": True, "stream_options": {"include_obfuscation": True}}, {"stream": True, "obfuscate": True}),
        ({"reasoning_effort": "low", "verbosity": "high"}, {"template_kwargs": LOW_EFFORT}),
        ({"reasoning_effort": "none"}, {"template_kwargs": NO_EFFORT}),
        ({"response_format": {"type": "json_object"}}, {"constraint": Constraint(kind="json_object")}),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}}, {"constraint": ANY_OBJECT}),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"const": 10**30}}}},
            {"constraint": Constraint(kind="json_schema", value=f'{{"const":{10**30}}}')},
        ),
        ({"tools": [FUNCTION]}, {"tools": (TOOL,)}),
        ({"tools": [FUNCTION], "tool_choice": "none"}, {"tools": (TOOL,), "tool_choice": "none"}),
        ({"tools": [FUNCTION], "tool_choice": "required"}, {"tools": (TOOL,), "tool_choice": "required"}),
        ({"tools": [FUNCTION], "parallel_tool_calls": False}, {"tools": (TOOL,), "parallel_tool_calls": False}),
        (
            {"tools": [FUNCTION, OTHER], "tool_choice": {"type": "function", "function": {"name": "g"}}},
            {"tools": (TOOL, OTHER_TOOL), "tool_choice": "required", "named_tool": "g"},
        ),
        (
            {
                "tools": [FUNCTION, OTHER],
                "tool_choice": {
                    "type": "allowed_tools",
                    "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "g"}}]},
                },
            },
            {"tools": (OTHER_TOOL,), "tool_choice": "required"},
        ),
        ({"functions": [OTHER["function"]]}, FUNCTIONS),
        ({"functions": [OTHER["function"]], "function_call": "none"}, FUNCTIONS | {"tool_choice": "none"}),
        (
            {"functions": [OTHER["function"]], "function_call": {"name": "g"}},
            FUNCTIONS | {"tool_choice": "required", "named_tool": "g"},
        ),
    ],
)
def test_fields(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    assert parse(**fields) == msgspec.structs.replace(parse(), **expected)


def test_calls_and_their_results() -> None:
    request = parse(
        messages=[
            USER,
            {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning_content": "Hm."},
            {"role": "tool", "content": [{"type": "text", "text": "4"}], "tool_call_id": "c1"},
            {"role": "assistant", "function_call": {"name": "g", "arguments": "{"}},
            {"role": "function", "content": None, "name": "g"},
        ]
    )
    assert request.messages[1:] == (
        Message(role="assistant", reasoning="Hm.", tool_calls=(ToolCall(id="c1", name="f", arguments="{}"),)),
        Message(role="tool", content="4", name="f", tool_call_id="c1"),
        Message(role="assistant", tool_calls=(ToolCall(id="call00003", name="g", arguments="{"),)),
        Message(role="tool", name="g", tool_call_id="call00003"),
    )


def test_the_annotations_of_an_answer_come_back_with_the_history() -> None:
    message: dict[str, Any] = {"role": "assistant", "content": "Hi", "refusal": None, "annotations": []}
    assert parse(messages=[USER, message]).messages[1] == Message(role="assistant", content="Hi")


def test_an_answer_as_sdks_have_parsed_it_comes_back_with_the_history() -> None:
    answer = {"role": "assistant", "content": '{"a":1}', "refusal": None, "tool_calls": None, "parsed": {"a": 1}}
    function = {"name": "f", "arguments": "{}", "parsed_arguments": {}}
    calls = {"role": "assistant", "content": None, "tool_calls": [{**CALL, "index": 0, "function": function}]}
    result = {"role": "tool", "content": "4", "tool_call_id": "c1"}
    assert parse(messages=[USER, answer, USER, calls, result]).messages[1::2] == (
        Message(role="assistant", content='{"a":1}'),
        Message(role="assistant", tool_calls=(ToolCall(id="c1", name="f", arguments="{}"),)),
    )


def test_an_answer_with_the_fields_of_litellm_comes_back_with_the_history() -> None:
    added = {
        "provider_specific_fields": {"refusal": None},
        "thinking_blocks": [{"type": "thinking", "thinking": "Hm."}],
    }
    message = {"role": "assistant", "content": "Hi", "reasoning_content": "Hm.", **added}
    assert parse(messages=[USER, message]).messages[1] == Message(role="assistant", content="Hi", reasoning="Hm.")


@pytest.mark.parametrize(("sent", "name"), [({"name": "g"}, "g"), ({}, "f")])
def test_a_result_has_the_name_that_the_client_gives_or_that_of_the_call(sent: dict[str, str], name: str) -> None:
    result = {"role": "tool", "tool_call_id": "c1", "content": "4", **sent}
    messages = [USER, {"role": "assistant", "tool_calls": [CALL]}, result]
    assert parse(messages=messages).messages[-1].name == name


def test_the_fields_of_an_answer_come_back_in_its_text() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    copied = {"role": "assistant", "refusal": None, "annotations": [], "tool_calls": [call]}
    text = {"type": "text", "text": "Hi"}
    answer = {"role": "assistant", "content": [text | copied]}
    assert parse(messages=[USER, answer]).messages[1] == Message(role="assistant", content="Hi")
    for part, message in {
        "role": {"role": "user", "content": [text | copied]},
        "cited": {"role": "assistant", "content": [text | {"cited": True}]},
    }.items():
        status, error = error_of(body(messages=[message]))
        assert (status, error["message"]) == (400, f"Unknown parameter: 'messages[0].content[0].{part}'.")


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "refusal": "No."},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
    ],
)
def test_a_refusal_is_what_the_assistant_said(message: dict[str, Any]) -> None:
    assert parse(messages=[USER, message]).messages[1] == Message(role="assistant", content="No.")


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "audio": ({"audio": {"voice": "alloy", "format": "wav"}}, "text only"),
    "modalities": (
        {"modalities": ["text", "audio"], "audio": {"voice": {"id": "v"}, "format": "wav"}},
        "text only",
    ),
    "moderation": ({"moderation": {"model": "m", "policy": {"input": {"mode": "block"}}}}, "No moderation model"),
    "prediction": ({"prediction": {"type": "content", "content": "text"}}, "not supported"),
    "prompt_cache_options": ({"prompt_cache_options": {"mode": "explicit"}}, "always cached"),
    "web_search_options": (
        {"web_search_options": {"user_location": {"type": "approximate", "approximate": {"city": "Rome"}}}},
        "Web search is not available",
    ),
}


@pytest.mark.parametrize("field", sorted(REFUSED))
def test_what_is_not_served_is_refused_by_name(field: str) -> None:
    fields, reason = REFUSED[field]
    status, error = error_of(body(**fields))
    assert (status, error["code"]) == (400, "unsupported_parameter")
    # Of several refused fields in one body, the first is named.
    assert error["param"] in fields
    assert f"Unsupported parameter: '{error['param']}' is not supported with this model." in (error["message"] or "")
    assert reason in (error["message"] or "")


REFUSED_VALUES: dict[str, dict[str, Any]] = {
    "prompt_cache_retention": {"prompt_cache_retention": "24h"},
    "service_tier": {"service_tier": "scale"},
}


@pytest.mark.parametrize("field", sorted(REFUSED_VALUES))
def test_a_value_that_is_not_served_is_refused_by_name(field: str) -> None:
    status, error = error_of(body(**REFUSED_VALUES[field]))
    assert (status, error["param"], error["code"]) == (400, field, "unsupported_value")
    assert "Supported values are: " in (error["message"] or "")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": [{"role": "assistant", "audio": {"id": "a"}}]}, "messages[0].audio"),
        (
            {"messages": [{"role": "user", "content": [TEXT | {"prompt_cache_breakpoint": {"mode": "explicit"}}]}]},
            "messages[0].content[0].prompt_cache_breakpoint",
        ),
        (
            {
                "messages": [
                    {
                        "role": "assistant",
                        "tool_calls": [{"id": "c1", "type": "custom", "custom": {"name": "c", "input": ""}}],
                    },
                    {"role": "tool", "content": "", "tool_call_id": "c1"},
                ]
            },
            "messages[0].tool_calls[0].type",
        ),
        ({"tools": [FUNCTION, CUSTOM]}, "tools[1].type"),
    ],
)
def test_what_is_not_served_inside_a_field_is_refused_by_path(fields: dict[str, Any], param: str) -> None:
    _, error = error_of(body(**fields))
    assert (error["param"], error["code"]) == (param, "unsupported_parameter")


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
        {"type": "file", "file": {"file_id": "f"}},
    ],
)
def test_a_modality_that_the_model_lacks_is_named(part: dict[str, Any]) -> None:
    _, error = error_of(body(messages=[USER, {"role": "user", "content": [{"type": "text", "text": ""}, part]}]))
    assert error["message"] == f"Invalid content type. {part['type']} is only supported by certain models."
    assert error["param"] == "messages.[1].content.[1].type"


def test_image_urls_keep_their_places_in_the_text() -> None:
    def image(url: str, **options: str) -> dict[str, Any]:
        return {"type": "image_url", "image_url": {"url": url, **options}}

    def text(text: str) -> dict[str, Any]:
        return {"type": "text", "text": text}

    content = [
        image("data:a", detail="low"),
        text("One"),
        text("two"),
        image("https://b", detail="high"),
        image("http://c", detail="auto"),
        text("three"),
        image("DATA:d", detail="original"),
    ]
    (message,) = parse(messages=[{"role": "user", "content": content}]).messages
    assert message.content == "One\ntwothree"
    assert message.images == (
        Image(at=0, param="messages[0].content[0]", low=True, url="data:a"),
        Image(at=7, param="messages[0].content[3]", url="https://b"),
        Image(at=7, param="messages[0].content[4]", url="http://c"),
        Image(at=12, param="messages[0].content[6]", url="DATA:d"),
    )


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://host/a.png", "javascript:alert(1)", "blob:x", "FILE:/a"])
def test_image_urls_have_schemes_that_are_served(url: str) -> None:
    part = {"type": "image_url", "image_url": {"url": url}}
    _, error = error_of(body(messages=[USER, {"role": "user", "content": [part]}]))
    assert error["param"] == "messages[1].content[0]"
    assert f"scheme '{url.partition(':')[0]}'" in str(error["message"])


@pytest.mark.parametrize("role", ["system", "developer", "assistant"])
def test_only_users_send_an_image_url(role: str) -> None:
    part = {"type": "image_url", "image_url": {"url": "data:,"}}
    _, error = error_of(body(messages=[USER, {"role": role, "content": [part]}]))
    assert error["param"] == "messages[1].content[0].type"


def test_the_schema_has_every_field_of_the_sdk_and_each_is_served_or_listed() -> None:
    schema = set(ChatCompletionRequest.model_fields)
    assert schema == set(get_type_hints(CompletionCreateParamsStreaming))
    assert schema == SERVED | REFUSED.keys() | REFUSED_VALUES.keys()
    assert refused_fields(ChatCompletionRequest).keys() == REFUSED.keys()
