"""What valid bodies become, and what is refused because it is not served yet."""

from typing import Any, get_type_hints

import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

from api.dialects.openai.parse import DEFAULTS
from api.dialects.openai.schema import ChatCompletionRequest
from api.dialects.openai.unserved import NOT_SERVED
from shared.request import ChatRequest, Message, Sampling
from tests.unit.dialects.bodies import USER, body, error_of, parse

SERVED = {
    "model",
    "messages",
    "stream",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "stop",
    "seed",
    "user",
}
FUNCTION = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "strict": True}}
CUSTOM = {"type": "custom", "custom": {"name": "c", "format": {"type": "text"}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


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
        ("frequency_penalty", 0),
        ("presence_penalty", 0.0),
        ("logprobs", False),
        ("logit_bias", {}),
        ("metadata", {}),
        ("modalities", ["text"]),
        ("response_format", {"type": "text"}),
        ("service_tier", "auto"),
        ("store", False),
        ("tool_choice", "none"),
        ("function_call", "none"),
        ("verbosity", "medium"),
    ],
)
def test_a_value_that_asks_for_nothing_passes(field: str, value: Any) -> None:
    assert parse(**{field: value}) == parse()


NOT_NEUTRAL: dict[str, dict[str, Any]] = {
    "audio": {"audio": {"voice": "alloy", "format": "wav"}},
    "frequency_penalty": {"frequency_penalty": -2},
    "function_call": {"function_call": {"name": "f"}, "functions": [{"name": "f"}]},
    "functions": {"functions": [{"name": "f"}]},
    "logit_bias": {"logit_bias": {"5": -100}},
    "logprobs": {"logprobs": True},
    "metadata": {"metadata": {"a": "b"}, "store": True},
    "modalities": {"modalities": ["text", "audio"], "audio": {"voice": {"id": "v"}, "format": "wav"}},
    "moderation": {"moderation": {"model": "m", "policy": {"input": {"mode": "block"}}}},
    "n": {"n": 2},
    "parallel_tool_calls": {"parallel_tool_calls": True, "tools": [FUNCTION]},
    "prediction": {"prediction": {"type": "content", "content": "text"}},
    "presence_penalty": {"presence_penalty": 0.1},
    "prompt_cache_key": {"prompt_cache_key": "k"},
    "prompt_cache_options": {"prompt_cache_options": {"mode": "implicit"}},
    "prompt_cache_retention": {"prompt_cache_retention": "24h"},
    "reasoning_effort": {"reasoning_effort": "low"},
    "response_format": {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}}},
    "safety_identifier": {"safety_identifier": "s"},
    "service_tier": {"service_tier": "flex"},
    "store": {"store": True},
    "tool_choice": {"tool_choice": {"type": "custom", "custom": {"name": "c"}}, "tools": [CUSTOM]},
    "tools": {"tools": [FUNCTION, CUSTOM]},
    "top_logprobs": {"top_logprobs": 0, "logprobs": True},
    "verbosity": {"verbosity": "low"},
    "web_search_options": {
        "web_search_options": {"user_location": {"type": "approximate", "approximate": {"city": "Rome"}}}
    },
}


@pytest.mark.parametrize("field", sorted(NOT_SERVED))
def test_what_is_not_served_is_refused_by_name(field: str) -> None:
    # Of several refused fields in one body, the first is named.
    fields = NOT_NEUTRAL[field]
    status, error = error_of(body(**fields))
    assert (status, error["code"]) == (400, "unsupported_parameter")
    assert error["param"] in fields
    assert error["message"] == f"Unsupported parameter: '{error['param']}' is not supported with this model."


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        (
            [{"role": "assistant", "tool_calls": [CALL]}, {"role": "tool", "content": "", "tool_call_id": "c1"}],
            "messages[0].tool_calls",
        ),
        ([{"role": "function", "content": None, "name": "f"}], "messages[0].role"),
        ([USER, {"role": "assistant", "refusal": "No."}], "messages[1].refusal"),
        ([{"role": "assistant", "content": [{"type": "refusal", "refusal": ""}]}], "messages[0].content[0].refusal"),
        ([{"role": "assistant", "audio": {"id": "a"}}], "messages[0].audio"),
        (
            [
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "", "prompt_cache_breakpoint": {"mode": "explicit"}}],
                }
            ],
            "messages[0].content[0].prompt_cache_breakpoint",
        ),
    ],
)
def test_messages_that_are_not_served_are_refused_by_path(messages: list[dict[str, Any]], param: str) -> None:
    _, error = error_of(body(messages=messages))
    assert (error["param"], error["code"]) == (param, "unsupported_parameter")


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "https://example.org/cat.png", "detail": "low"}},
        {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
        {"type": "file", "file": {"file_id": "f"}},
    ],
)
def test_a_modality_that_the_model_lacks_is_named(part: dict[str, Any]) -> None:
    _, error = error_of(body(messages=[USER, {"role": "user", "content": [{"type": "text", "text": ""}, part]}]))
    assert error["message"] == f"Invalid content type. {part['type']} is only supported by certain models."
    assert error["param"] == "messages.[1].content.[1].type"


def test_obfuscation_is_refused_when_asked_for() -> None:
    _, error = error_of(body(stream=True, stream_options={"include_obfuscation": True}))
    assert error["param"] == "stream_options.include_obfuscation"


def test_the_schema_has_every_field_of_the_sdk_and_each_is_served_or_listed() -> None:
    schema = set(ChatCompletionRequest.model_fields)
    assert schema == set(get_type_hints(CompletionCreateParamsStreaming))
    assert schema == SERVED | set(NOT_SERVED)
    assert not SERVED & set(NOT_SERVED)
    assert all(row.reason.endswith(".") for row in NOT_SERVED.values())
