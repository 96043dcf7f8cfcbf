"""The azure-ai-inference SDK, unchanged, on the real model."""

import json
from collections.abc import Iterator

import pytest
from azure.ai.inference import ChatCompletionsClient, load_client
from azure.ai.inference.aio import ChatCompletionsClient as AsyncClient
from azure.ai.inference.models import (
    AssistantMessage,
    AsyncStreamingChatCompletions,
    ChatCompletionsToolDefinition,
    FunctionDefinition,
    JsonSchemaFormat,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from azure.core.credentials import AzureKeyCredential
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.core.rest import HttpResponse

from tests.acceptance.conftest import MODEL
from tests.support.fleet import Fleet
from tests.support.sdk_types import conversation

KEY = AzureKeyCredential("none")
FRANCE = [SystemMessage("Answer briefly."), UserMessage("What is the capital of France?")]


def endpoint(fleet: Fleet) -> str:
    return f"http://127.0.0.1:{fleet.port}"


@pytest.fixture
def client(real_fleet: Fleet) -> Iterator[ChatCompletionsClient]:
    with ChatCompletionsClient(endpoint(real_fleet), KEY, retry_total=0, temperature=0.0, max_tokens=24) as made:
        yield made


def test_it_completes(client: ChatCompletionsClient) -> None:
    answer = client.complete(messages=FRANCE)
    assert "Paris" in answer.choices[0].message.content
    assert answer.model == MODEL
    assert answer.choices[0].finish_reason in ("stop", "length")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_it_streams_what_it_completes(client: ChatCompletionsClient) -> None:
    whole = client.complete(messages=FRANCE)
    updates = list(client.complete(messages=FRANCE, stream=True))
    text = "".join(update.choices[0].delta.content or "" for update in updates if update.choices)
    assert text == whole.choices[0].message.content
    assert updates[-1].usage == whole.usage
    assert len(updates) > 4


async def test_it_does_so_asynchronously(client: ChatCompletionsClient, real_fleet: Fleet) -> None:
    whole = client.complete(messages=FRANCE)
    async with AsyncClient(endpoint(real_fleet), KEY, temperature=0.0, max_tokens=24) as other:
        answer = await other.complete(messages=FRANCE)
        stream = await other.complete(messages=FRANCE, stream=True)
        text = "".join([update.choices[0].delta.content or "" async for update in stream if update.choices])
        assert isinstance(stream, AsyncStreamingChatCompletions)
        await stream.aclose()
    assert answer.choices[0].message.content == text == whole.choices[0].message.content


def test_a_seed_makes_a_text_repeatable(client: ChatCompletionsClient) -> None:
    texts = {
        client.complete(messages=FRANCE, temperature=1.0, seed=seed, max_tokens=16).choices[0].message.content
        for seed in (11, 11, 12, 13)
    }
    assert 2 <= len(texts) <= 3


def test_extra_parameters_reach_the_engine(client: ChatCompletionsClient) -> None:
    greedy = client.complete(messages=FRANCE).choices[0].message.content
    narrowed = client.complete(messages=FRANCE, temperature=1.5, model_extras={"top_k": 1})
    assert narrowed.choices[0].message.content == greedy


def test_a_required_tool_is_called(client: ChatCompletionsClient) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}},
        "required": ["city"],
        "additionalProperties": False,
    }
    weather = ChatCompletionsToolDefinition(
        function=FunctionDefinition(name="weather", description="Tells the weather of a city.", parameters=schema)
    )
    messages = conversation(UserMessage("What is the weather in Rome?"))
    answer = client.complete(
        messages=messages,
        tools=[weather],
        tool_choice="required",
        max_tokens=128,
        model_extras={"parallel_tool_calls": False},
    )
    (choice,) = answer.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls
    call = choice.message.tool_calls[0]
    assert call.function.name == "weather"
    assert list(json.loads(call.function.arguments)) == ["city"]
    after = [*messages, AssistantMessage(tool_calls=[call]), ToolMessage("Sunny.", tool_call_id=call.id)]
    assert client.complete(messages=after, tools=[weather], tool_choice="none").choices[0].message.content


def test_json_of_a_schema_and_of_none(client: ChatCompletionsClient) -> None:
    schema = {
        "type": "object",
        "properties": {"capital": {"type": "string", "maxLength": 20}, "large": {"type": "boolean"}},
        "required": ["capital", "large"],
        "additionalProperties": False,
    }
    form = JsonSchemaFormat(name="city", schema=schema, strict=True)
    choice = client.complete(messages=FRANCE, response_format=form, max_tokens=96).choices[0]
    assert choice.finish_reason == "stop"
    value = json.loads(choice.message.content)
    assert (type(value["capital"]), type(value["large"])) == (str, bool)
    free = client.complete(messages=FRANCE, response_format="json_object", max_tokens=200).choices[0]
    assert free.finish_reason == "length" or isinstance(json.loads(free.message.content), dict)


def test_the_model_is_described(real_fleet: Fleet) -> None:
    with load_client(endpoint(real_fleet), KEY) as found:
        assert isinstance(found, ChatCompletionsClient)
        assert found.get_model_info().model_name == MODEL


def test_its_exceptions(client: ChatCompletionsClient) -> None:
    with pytest.raises(HttpResponseError) as unprocessable:
        client.complete(messages=conversation(UserMessage("word " * 20_000)))
    assert unprocessable.value.status_code == 422
    response = unprocessable.value.response
    assert isinstance(response, HttpResponse)
    error = response.json()
    assert (error["code"], error["detail"]["loc"]) == ("context_length_exceeded", ["body", "messages"])
    with pytest.raises(ResourceNotFoundError):
        client.complete(messages=FRANCE, headers={"azureml-model-deployment": "none"})
