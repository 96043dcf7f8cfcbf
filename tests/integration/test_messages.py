"""Anthropic's Messages, with its SDK and a simulated worker."""

from collections.abc import Iterator

import anthropic
import pytest
from anthropic.types import MessageParam

from tests.support.eventually import PATIENCE
from tests.support.fleet import Fleet

HELLO: MessageParam = {"role": "user", "content": "hello"}


@pytest.fixture
def client(session_fleet: Fleet) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(
        base_url=f"http://127.0.0.1:{session_fleet.port}", api_key="none", max_retries=0, timeout=PATIENCE
    ) as opened:
        yield opened


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_that_is_too_long_is_refused_in_words_that_clients_recognise(
    client: anthropic.Anthropic, stream: bool
) -> None:
    (model,) = client.models.list()
    limit = model.max_input_tokens
    assert limit is not None
    counted = client.messages.count_tokens(model="sim", messages=[HELLO]).input_tokens
    with pytest.raises(anthropic.BadRequestError) as refusal:
        client.messages.create(model="sim", max_tokens=limit, messages=[HELLO], stream=stream)
    assert f"input length and `max_tokens` exceed context limit: {counted} + {limit} > {limit}," in str(refusal.value)
    longer: MessageParam = {"role": "user", "content": "hello" + "x" * limit}
    with pytest.raises(anthropic.BadRequestError) as refusal:
        client.messages.create(model="sim", max_tokens=5, messages=[longer], stream=stream)
    assert f"prompt is too long: {counted + limit} tokens > {limit} maximum" in str(refusal.value)
