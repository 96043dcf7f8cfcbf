"""The official OpenAI SDK on the real model: sync, async, helpers and exceptions; all that comes is strictly typed."""

import json
import math
from collections.abc import Iterator
from typing import Any

import openai
import openvino_genai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionTokenLogprob
from pydantic import BaseModel

from tests.acceptance.conftest import MODEL
from tests.support.fleet import Fleet
from tests.support.sdk_types import rechecked
from worker.model.local import default_model

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


@pytest.fixture
def async_client(real_fleet: Fleet) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=f"http://127.0.0.1:{real_fleet.port}/v1", api_key="none", max_retries=0, timeout=120
    )


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


def test_a_logit_bias_bans_tokens(client: openai.OpenAI) -> None:
    tokenizer = openvino_genai.Tokenizer(str(default_model()))
    assert "Paris" in (chat(client).choices[0].message.content or "")
    banned = {int(token) for word in ("Paris", " Paris") for token in tokenizer.encode(word).input_ids.data[0]}
    answer = chat(client, logit_bias={str(token): -100 for token in banned})
    assert "Paris" not in (answer.choices[0].message.content or "")


def test_choices_of_a_seed_differ(client: openai.OpenAI) -> None:
    answer = chat(client, n=3, seed=11, temperature=1.2)
    assert len({choice.message.content for choice in answer.choices}) > 1


def test_penalties_change_the_text(client: openai.OpenAI) -> None:
    again = [{"role": "user", "content": "Say the word sea ten times."}]
    plain = chat(client, messages=again).choices[0].message.content
    assert chat(client, messages=again, frequency_penalty=2, presence_penalty=2).choices[0].message.content != plain


def test_a_top_p_of_zero_is_greedy(client: openai.OpenAI) -> None:
    text = chat(client).choices[0].message.content
    assert chat(client, temperature=1.5, top_p=0).choices[0].message.content == text


async def test_the_async_client(async_client: openai.AsyncOpenAI) -> None:
    async with async_client:
        whole = rechecked(await async_client.chat.completions.create(messages=FRANCE, **GREEDY))
        stream = await async_client.chat.completions.create(messages=FRANCE, stream=True, **GREEDY)
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        assert text == whole.choices[0].message.content
        assert "Paris" in text
        with pytest.raises(openai.NotFoundError):
            await async_client.chat.completions.create(model="unknown", messages=FRANCE)


def test_the_stream_helper(client: openai.OpenAI) -> None:
    whole = chat(client).choices[0]
    with client.chat.completions.stream(messages=FRANCE, stream_options={"include_usage": True}, **GREEDY) as stream:
        text = "".join(event.delta for event in stream if event.type == "content.delta")
        final = stream.get_final_completion()
    assert text == whole.message.content
    assert final.choices[0].message.content == text
    assert final.choices[0].finish_reason == whole.finish_reason
    assert final.usage is not None


def test_raw_responses(client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(messages=FRANCE, **GREEDY)
    assert raw.headers["content-type"] == "application/json"
    assert raw.headers["x-request-id"]
    assert rechecked(raw.parse()).object == "chat.completion"
    with client.chat.completions.with_streaming_response.create(messages=FRANCE, stream=True, **GREEDY) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in response.iter_lines() if line]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"


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
    messages = [{"role": "user", "content": 'Answer with the JSON object {"name": "Ben"}.'}]
    loose = chat(client, messages=messages, max_tokens=100, response_format={"type": "json_object"})
    assert json.loads(loose.choices[0].message.content or "")


def test_an_answer_that_is_cut_off_can_not_be_parsed(client: openai.OpenAI) -> None:
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(model=MODEL, max_tokens=3, messages=FRANCE, response_format=City)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_a_tool_that_must_be_called(client: openai.OpenAI, choice: Any) -> None:
    fields = {"messages": WEATHER, "tools": [TOOL], "tool_choice": choice, "parallel_tool_calls": False}
    answer = chat(client, **fields, max_tokens=100).choices[0]
    assert answer.finish_reason == "tool_calls"
    (call,) = answer.message.tool_calls or []
    assert call.type == "function"
    assert call.function.name == "get_weather"
    arguments = json.loads(call.function.arguments)
    assert arguments.keys() == {"city", "unit"}
    assert arguments["unit"] in ("C", "F")
    # And on with its result.
    history = [*WEATHER, answer.message.model_dump(exclude_unset=True)]
    result = {"role": "tool", "tool_call_id": call.id, "content": "Sunny, 20 degrees."}
    assert chat(client, messages=[*history, result], tools=[TOOL], tool_choice="none").choices[0].message.content


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


def test_a_required_call_is_made(client: openai.OpenAI) -> None:
    answer = chat(client, messages=FRANCE, tools=[TOOL], tool_choice="required", max_tokens=300).choices[0]
    assert len(answer.message.tool_calls or []) >= 1
    assert not answer.message.content


def test_a_function_that_must_be_called(client: openai.OpenAI) -> None:
    function = {name: value for name, value in TOOL["function"].items() if name != "strict"}
    fields = {"messages": WEATHER, "functions": [function], "function_call": {"name": "get_weather"}}
    answer = chat(client, **fields, max_tokens=100).choices[0]
    assert answer.finish_reason == "function_call"
    assert answer.message.function_call is not None
    assert "city" in json.loads(answer.message.function_call.arguments)


@pytest.mark.parametrize(
    ("fields", "error", "param", "code"),
    [
        ({"model": "unknown"}, openai.NotFoundError, None, "model_not_found"),
        ({"temperature": 3}, openai.BadRequestError, "temperature", "decimal_above_max_value"),
        ({"logit_bias": {"999999": 1}}, openai.BadRequestError, "logit_bias", None),
        ({"logprobs": True, "top_logprobs": 21}, openai.BadRequestError, "top_logprobs", "integer_above_max_value"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            openai.BadRequestError,
            "messages.[0].content.[0].type",
            None,
        ),
        ({"max_tokens": 100_000}, openai.BadRequestError, "messages", "context_length_exceeded"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_exceptions(
    client: openai.OpenAI,
    fields: dict[str, Any],
    error: type[openai.APIStatusError],
    param: str | None,
    code: str | None,
    stream: bool,
) -> None:
    body: dict[str, Any] = {"messages": FRANCE, "stream": stream} | GREEDY | fields
    with pytest.raises(error) as raised:
        client.chat.completions.create(**body)
    assert (raised.value.param, raised.value.code) == (param, code)
    assert raised.value.request_id


def test_plain_completions(client: openai.OpenAI) -> None:
    prompts = ["The capital of France is", "One, two, three,"]
    answer = rechecked(client.completions.create(model=MODEL, prompt=prompts, temperature=0, max_tokens=8))
    texts = [choice.text for choice in answer.choices]
    assert "Paris" in texts[0]
    assert "four" in texts[1]
    stream = client.completions.create(model=MODEL, prompt=prompts[0], temperature=0, max_tokens=8, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == texts[0]
    found = client.completions.create(
        model=MODEL, prompt=prompts[0], temperature=0, max_tokens=8, logprobs=0, echo=False
    )
    logprobs = found.choices[0].logprobs
    assert logprobs is not None
    assert "".join(logprobs.tokens or []) == texts[0]
    assert len(logprobs.token_logprobs or []) == 8
    likeliest = client.completions.create(model=MODEL, prompt=prompts[0], temperature=0, max_tokens=8, logprobs=2)
    logprobs = likeliest.choices[0].logprobs
    assert logprobs is not None
    assert [max(top, key=lambda token: top[token]) for top in logprobs.top_logprobs or []] == logprobs.tokens
    assert [len(top) for top in logprobs.top_logprobs or []] == [2] * 8
    best = client.completions.create(model=MODEL, prompt=prompts[0], max_tokens=8, best_of=3, seed=3)
    assert len(best.choices) == 1
