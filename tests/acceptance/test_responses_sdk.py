"""The Responses API by OpenAI's SDK on the real model."""

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
    cut = respond(client, input=FRANCE, instructions="Be brief.", extra_body={"stop": ["Paris"]})
    assert cut.output_text == whole.output_text.partition("Paris")[0]


def test_a_response_shows_the_models_default_sampling(client: openai.OpenAI) -> None:
    response = client.responses.create(model=MODEL, input="Hi", max_output_tokens=16, store=False)
    assert (response.temperature, response.top_p) == (0.2, 0.9)


def test_parse(client: openai.OpenAI) -> None:
    parsed = client.responses.parse(input="Is Paris a capital?", text_format=City, **GREEDY)
    assert isinstance(parsed.output_parsed, City)
