"""The official OpenAI SDK on the real model: sync, async, helpers and exceptions; all that comes is strictly typed."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionTokenLogprob
from pydantic import BaseModel, Field, SecretStr

from tests.acceptance.conftest import MODEL
from tests.support.fleet import Fleet
from tests.support.sdk_types import rechecked

FRANCE: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]
WEATHER: list[Any] = [{"role": "user", "content": "What is the weather in Paris? Use the tool."}]
GREEDY: dict[str, Any] = {"model": MODEL, "temperature": 0, "max_tokens": 24}
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tell the weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "unit": {"enum": ["C", "F"]}},
            "required": ["city", "unit"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}


class City(BaseModel):
    """What ``.parse()`` asks for."""

    name: str
    country: str
    capital: bool


@pytest.fixture
def client(real_fleet: Fleet) -> Iterator[openai.OpenAI]:
    with real_fleet.client() as opened:
        yield opened


def chat(client: openai.OpenAI, **fields: Any) -> ChatCompletion:
    answer: ChatCompletion = client.chat.completions.create(**({"messages": FRANCE} | GREEDY | fields))
    return rechecked(answer)


def test_log_probabilities_fit_the_text(client: openai.OpenAI) -> None:
    whole = chat(client, logprobs=True, top_logprobs=3)
    choice = whole.choices[0]
    assert choice.logprobs is not None
    tokens = choice.logprobs.content or []
    assert b"".join(bytes(token.bytes or []) for token in tokens).decode() == choice.message.content
    assert all(-50 < token.logprob <= 0 for token in tokens)
    assert [len(token.top_logprobs) for token in tokens] == [3] * len(tokens)
    # Greedily chosen tokens are the likeliest.
    assert [(token.top_logprobs[0].token, token.top_logprobs[0].logprob) for token in tokens] == [
        (token.token, token.logprob) for token in tokens
    ]
    assert math.exp(sum(token.logprob for token in tokens) / len(tokens)) > 0.3
    streamed: list[ChatCompletionTokenLogprob] = []
    stream = client.chat.completions.create(messages=FRANCE, logprobs=True, top_logprobs=3, stream=True, **GREEDY)
    for chunk in stream:
        rechecked(chunk)
        logprobs = chunk.choices[0].logprobs
        streamed += logprobs.content or [] if logprobs else []
    assert [token.model_dump() for token in streamed] == [token.model_dump() for token in tokens]


def test_a_top_p_of_zero_is_greedy(client: openai.OpenAI) -> None:
    text = chat(client).choices[0].message.content
    assert chat(client, temperature=1.5, top_p=0).choices[0].message.content == text


def test_parsed_answers(client: openai.OpenAI) -> None:
    messages: list[Any] = [
        {"role": "user", "content": "Describe Paris as JSON: name, country, capital (true or false)."}
    ]
    answer = client.chat.completions.parse(
        model=MODEL, temperature=0, max_tokens=100, messages=messages, response_format=City
    )
    choice = answer.choices[0]
    assert choice.finish_reason == "stop"
    assert isinstance(choice.message.parsed, City)
    messages = [{"role": "user", "content": 'Write the colour of grass as JSON: {"colour": ...}'}]
    loose = chat(client, messages=messages, max_tokens=100, response_format={"type": "json_object"})
    assert json.loads(loose.choices[0].message.content or "")


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: Annotated[int, Field(ge=0, le=9)] = 9


class Dog(BaseModel):
    kind: Literal["dog"]
    home: Annotated[Path, Field(json_schema_extra={"maxLength": 20})]


class Pet(BaseModel):
    """Its schema has a discriminated union, a default and a format of pydantic's; the SDK sends it as strict."""

    pet: Annotated[Cat | Dog, Field(discriminator="kind")]
    secret: Annotated[SecretStr, Field(max_length=10)]


def test_parsed_answers_of_types_that_openai_refuses(client: openai.OpenAI) -> None:
    for kind in ("cat", "dog"):
        messages: list[Any] = [{"role": "user", "content": f"Describe a pet, a {kind}, as JSON."}]
        answer = client.chat.completions.parse(
            model=MODEL, temperature=0, max_tokens=100, messages=messages, response_format=Pet
        )
        assert isinstance(answer.choices[0].message.parsed, Pet)


@pytest.mark.parametrize("stream", [False, True])
def test_a_named_function_is_called_once(client: openai.OpenAI, stream: bool) -> None:
    named = {"type": "function", "function": {"name": "get_weather"}}
    messages = [{"role": "user", "content": "What is the weather in Paris, Rome, Oslo, Bonn, Cork and Nice?"}]
    fields = {"messages": messages, "tools": [TOOL], "tool_choice": named, "max_tokens": 300}
    if stream:
        with client.chat.completions.stream(**(GREEDY | fields)) as events:
            answer: Any = events.until_done().get_final_completion().choices[0]
    else:
        answer = chat(client, **fields).choices[0]
    assert answer.finish_reason == "tool_calls"
    (call,) = answer.message.tool_calls
    assert json.loads(call.function.arguments).keys() == {"city", "unit"}
    assert not answer.message.content


def test_a_function_that_must_be_called(client: openai.OpenAI) -> None:
    function = {name: value for name, value in TOOL["function"].items() if name != "strict"}
    fields = {"messages": WEATHER, "functions": [function], "function_call": {"name": "get_weather"}}
    answer = chat(client, **fields, max_tokens=100).choices[0]
    assert answer.finish_reason == "function_call"
    assert answer.message.function_call is not None
    assert "city" in json.loads(answer.message.function_call.arguments)
