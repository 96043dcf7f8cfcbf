"""Azure's routes over real HTTP with the official SDK, on a simulated engine."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from azure.ai.inference import ChatCompletionsClient, load_client
from azure.ai.inference.aio import ChatCompletionsClient as AsyncClient
from azure.ai.inference.models import (
    AsyncStreamingChatCompletions,
    ChatCompletionsToolDefinition,
    FunctionDefinition,
    ImageContentItem,
    ImageUrl,
    SystemMessage,
    TextContentItem,
    UserMessage,
)
from azure.core.credentials import AzureKeyCredential
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError

from tests.support.fleet import Fleet
from tests.support.sdk_types import conversation

CHAT = "/chat/completions?api-version=2024-05-01-preview"
HELLO = [{"role": "user", "content": "hello"}]
KEY = AzureKeyCredential("none")


@pytest.fixture
def client(session_fleet: Fleet) -> Iterator[ChatCompletionsClient]:
    with ChatCompletionsClient(f"http://127.0.0.1:{session_fleet.port}", KEY, retry_total=0) as made:
        yield made


def post(fleet: Fleet, path: str, body: object, **headers: str) -> tuple[int, dict[str, str], dict[str, Any]]:
    raw = body if isinstance(body, str) else json.dumps(body)
    status, answer_headers, answer = fleet.request("POST", path, raw, {"content-type": "application/json", **headers})
    return status, answer_headers, json.loads(answer)


def test_the_sdk_completes(client: ChatCompletionsClient) -> None:
    answer = client.complete(messages=[SystemMessage("Be kind."), UserMessage("hello")], max_tokens=5)
    assert answer.model == "sim"
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 5
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 5


def test_the_sdk_streams_what_it_completes(client: ChatCompletionsClient) -> None:
    messages = conversation(UserMessage([TextContentItem(text="hello")]))
    whole = client.complete(messages=messages, max_tokens=20)
    updates = list(client.complete(messages=messages, max_tokens=20, stream=True))
    text = "".join(update.choices[0].delta.content or "" for update in updates if update.choices)
    assert text == whole.choices[0].message.content
    assert updates[-1].usage == whole.usage


async def test_the_asynchronous_sdk_too(session_fleet: Fleet) -> None:
    async with AsyncClient(f"http://127.0.0.1:{session_fleet.port}/models", KEY) as client:
        stream = await client.complete(messages=conversation(UserMessage("[[say one two]]")), stream=True)
        text = "".join([update.choices[0].delta.content or "" async for update in stream if update.choices])
        assert isinstance(stream, AsyncStreamingChatCompletions)
        await stream.aclose()
        assert text == "one two"
        assert (await client.get_model_info()).model_name == "sim"


def test_the_sdk_finds_the_right_client(session_fleet: Fleet) -> None:
    with load_client(f"http://127.0.0.1:{session_fleet.port}", KEY) as client:
        assert isinstance(client, ChatCompletionsClient)
        info = client.get_model_info()
    assert (info.model_name, info.model_provider_name) == ("sim", "vinoqueue")


def test_the_sdk_passes_extra_parameters_through(client: ChatCompletionsClient) -> None:
    answer = client.complete(
        messages=conversation(UserMessage("[[say one two]]")),
        model_extras={"include_stop_str_in_output": True},
        stop=["two"],
    )
    assert answer.choices[0].message.content == "one two"
    with pytest.raises(HttpResponseError, match="surprise") as refused:
        client.complete(messages=conversation(UserMessage("hello")), model_extras={"surprise": 1})
    assert refused.value.status_code == 400


WEATHER = ChatCompletionsToolDefinition(
    function=FunctionDefinition(name="weather", description="d", parameters={"type": "object"})
)
CALL = conversation(UserMessage('[[say <tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>]]'))


def test_the_sdk_sees_the_calls_that_the_model_makes(client: ChatCompletionsClient) -> None:
    choice = client.complete(messages=CALL, tools=[WEATHER]).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls is not None
    (call,) = choice.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"city": "Rome"})
    deltas = [
        part.function
        for update in client.complete(messages=CALL, tools=[WEATHER], stream=True)
        for each in update.choices
        for part in each.delta.tool_calls or ()
    ]
    assert deltas[0].name == "weather"
    assert json.loads("".join(part.arguments or "" for part in deltas)) == {"city": "Rome"}


def test_the_sdk_raises_its_exceptions(client: ChatCompletionsClient) -> None:
    with pytest.raises(HttpResponseError, match="above maximum") as unprocessable:
        client.complete(messages=conversation(UserMessage("hello")), temperature=5)
    assert unprocessable.value.status_code == 422
    with pytest.raises(ResourceNotFoundError, match="does not exist"):
        client.complete(messages=conversation(UserMessage("hello")), headers={"azureml-model-deployment": "none"})
    picture = ImageContentItem(image_url=ImageUrl(url="http://host/a.png"))
    with pytest.raises(ResourceNotFoundError, match="Modality not supported"):
        client.complete(messages=conversation(UserMessage([picture])))


def test_the_sdk_raises_when_an_answer_breaks_in_mid_stream(client: ChatCompletionsClient) -> None:
    stream = client.complete(messages=conversation(UserMessage("[[exhaust at 5]]")), stream=True)
    with pytest.raises(ValueError, match="KV cache"):
        list(stream)


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/chat/completions?api-version=", {"messages": HELLO}, 400, "invalid_api_version"),
        ("/models/chat/completions?api-version=new", {"messages": HELLO}, 400, "invalid_api_version"),
        (CHAT, "{", 400, "invalid_request"),
        (CHAT, {"messages": HELLO, "top_k": 1}, 400, "invalid_request"),
        (CHAT, {"messages": HELLO, "max_tokens": -1}, 422, "integer_below_min_value"),
        (CHAT, {"messages": [{"role": "user", "content": "word " * 60_000}]}, 422, "context_length_exceeded"),
        ("/models/nothing?api-version=2024-05-01-preview", {}, 404, "not_found"),
    ],
)
def test_every_error_names_its_code(session_fleet: Fleet, path: str, body: object, status: int, code: str) -> None:
    found, headers, answer = post(session_fleet, path, body)
    assert (found, headers["x-ms-error-code"], answer["status"]) == (status, code, status), answer
    assert post(session_fleet, CHAT, {"messages": HELLO, "max_tokens": 2})[0] == 200


def test_a_wrong_method_gets_an_error_in_azures_form(session_fleet: Fleet) -> None:
    status, headers, body = session_fleet.request("GET", CHAT)
    assert (status, headers["x-ms-error-code"], headers["allow"]) == (405, "method_not_allowed", "OPTIONS, POST")
    assert json.loads(body)["status"] == 405


def test_the_model_is_described_to_those_who_name_a_version(session_fleet: Fleet) -> None:
    for path in ("/info", "/models/info"):
        assert session_fleet.request("GET", path)[0] == 400
        status, _, body = session_fleet.request("GET", f"{path}?api-version=2024-05-01-preview")
        assert (status, json.loads(body)["model_type"]) == (200, "chat-completion")
