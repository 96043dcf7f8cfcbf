"""The Responses API by OpenAI's SDK on the real model."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types.responses import Response
from pydantic import BaseModel

from tests.acceptance.conftest import MODEL
from tests.support.fleet import Fleet
from tests.support.sdk_types import rechecked

GREEDY: dict[str, Any] = {"model": MODEL, "temperature": 0, "max_output_tokens": 24}
FRANCE = "What is the capital of France?"
WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "Returns the weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "unit": {"enum": ["C", "F"]}},
        "required": ["city", "unit"],
        "additionalProperties": False,
    },
    "strict": True,
}


class City(BaseModel):
    """What ``.parse()`` asks for."""

    capital: bool
    unit: bool


@pytest.fixture
def client(real_fleet: Fleet) -> Iterator[openai.OpenAI]:
    with real_fleet.client() as opened:
        yield opened


def respond(client: openai.OpenAI, **fields: Any) -> Response:
    response: Response = client.responses.create(**(GREEDY | fields))
    return rechecked(response)


def test_create_and_stream(client: openai.OpenAI) -> None:
    whole = respond(client, input=FRANCE, instructions="Be brief.", top_logprobs=2)
    assert "Paris" in whole.output_text
    (message,) = whole.output
    assert message.type == "message"
    (part,) = message.content
    assert part.type == "output_text"
    assert "".join(bytes(token.bytes).decode() for token in part.logprobs or ()) == whole.output_text
    assert {len(token.top_logprobs) for token in part.logprobs or ()} == {2}
    with client.responses.stream(input=FRANCE, instructions="Be brief.", **GREEDY) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
    assert text == whole.output_text
    chat = client.chat.completions.create(
        model=MODEL,
        temperature=0,
        max_tokens=24,
        messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": FRANCE}],
    )
    assert chat.choices[0].message.content == whole.output_text
    assert chat.usage is not None
    assert whole.usage is not None
    assert whole.usage.input_tokens == chat.usage.prompt_tokens


def test_a_truncated_conversation_has_the_prompt_of_its_last_turns(client: openai.OpenAI) -> None:
    asked: Any = {"role": "user", "content": FRANCE}
    earlier: Any = [{"role": "user", "content": "word " * 9000}, {"role": "assistant", "content": "Yes."}]
    short = respond(client, input=[asked], instructions="Be brief.")
    with pytest.raises(openai.BadRequestError, match="context length"):
        respond(client, input=[*earlier, asked], instructions="Be brief.")
    cut = respond(client, input=[*earlier, asked], instructions="Be brief.", truncation="auto")
    assert (cut.output_text, cut.truncation) == (short.output_text, "auto")
    assert cut.usage is not None
    assert short.usage is not None
    assert cut.usage.input_tokens == short.usage.input_tokens


def test_a_response_shows_the_models_default_sampling(client: openai.OpenAI) -> None:
    response = client.responses.create(model=MODEL, input="Hi", max_output_tokens=16, store=False)
    assert (response.temperature, response.top_p) == (0.2, 0.9)


def test_parse(client: openai.OpenAI) -> None:
    parsed = client.responses.parse(input="Is Paris a capital?", text_format=City, **GREEDY)
    assert isinstance(parsed.output_parsed, City)


def test_a_tool_and_its_result(client: openai.OpenAI) -> None:
    ask = {"role": "user", "content": "What is the weather in Oslo?"}
    choice = {"type": "function", "name": "get_weather"}
    called = respond(client, input=[ask], tools=[WEATHER], tool_choice=choice, max_output_tokens=100)
    (call,) = called.output
    assert call.type == "function_call"
    assert set(json.loads(call.arguments)) == {"city", "unit"}
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "12 C, rain"}
    answered = respond(client, input=[ask, call.model_dump(), result], tools=[WEATHER], tool_choice="none")
    assert [item.type for item in answered.output] == ["message"]


def test_a_background_conversation(client: openai.OpenAI) -> None:
    started = client.responses.create(input=FRANCE, background=True, stream=True, **GREEDY)
    events: list[Any] = [rechecked(event) for event in started]
    first = events[-1].response
    assert first.output_text == respond(client, input=FRANCE).output_text
    middle = len(events) // 2
    assert list(client.responses.retrieve(first.id, stream=True, starting_after=middle)) == events[middle + 1 :]
    assert client.responses.retrieve(first.id) == first
    followed = respond(client, input="Say it again.", previous_response_id=first.id)
    history = [{"role": "user", "content": FRANCE}, {"role": "assistant", "content": first.output_text}]
    whole = respond(client, input=[*history, {"role": "user", "content": "Say it again."}])
    assert followed.output_text == whole.output_text
    endless = respond(client, input="Count to a million.", background=True, max_output_tokens=4000)
    assert client.responses.cancel(endless.id).status == "cancelled"
    assert client.responses.retrieve(endless.id).status == "cancelled"
