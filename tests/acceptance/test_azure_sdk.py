"""The azure-ai-inference SDK, unchanged, on the real model."""

import json
from collections.abc import Iterator

import pytest
from azure.ai.inference import ChatCompletionsClient
from azure.ai.inference.models import (
    AssistantMessage,
    ChatCompletionsToolDefinition,
    FunctionDefinition,
    JsonSchemaFormat,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from azure.core.credentials import AzureKeyCredential

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
