"""Anthropic's Python SDK against the real model."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.conftest import MODEL
from tests.support.fleet import Fleet

if TYPE_CHECKING:
    import anthropic
    from anthropic.types import MessageParam

GREEDY = {"temperature": 0}
"""The SDK has no parameter for it any more."""
ASK: "MessageParam" = {"role": "user", "content": "Name the capital of France."}


@pytest.fixture
def client(real_fleet: Fleet) -> Iterator["anthropic.Anthropic"]:
    import anthropic

    with anthropic.Anthropic(
        base_url=f"http://127.0.0.1:{real_fleet.port}", api_key="none", max_retries=0, timeout=240
    ) as opened:
        yield opened


def test_a_message_whole_and_streamed(client: "anthropic.Anthropic") -> None:
    message = client.messages.create(model=MODEL, max_tokens=24, extra_body=GREEDY, messages=[ASK], system="Be brief.")
    assert message._request_id is not None
    assert (message.type, message.role, message.model) == ("message", "assistant", MODEL)
    (block,) = message.content
    assert block.type == "text"
    assert "Paris" in block.text
    counted = client.messages.count_tokens(model=MODEL, messages=[ASK], system="Be brief.")
    assert 0 < message.usage.output_tokens <= 24
    assert message.usage.input_tokens == counted.input_tokens
    with client.messages.stream(
        model=MODEL, max_tokens=24, extra_body=GREEDY, messages=[ASK], system="Be brief."
    ) as stream:
        assert "".join(stream.text_stream) == block.text
        streamed = stream.get_final_message()
    assert (streamed.stop_reason, streamed.usage.output_tokens) == (message.stop_reason, message.usage.output_tokens)


def test_stop_reasons(client: "anthropic.Anthropic") -> None:
    cut = client.messages.create(model=MODEL, max_tokens=3, extra_body=GREEDY, messages=[ASK])
    assert (cut.stop_reason, cut.usage.output_tokens) == ("max_tokens", 3)
    stopped = client.messages.create(
        model=MODEL, max_tokens=24, extra_body=GREEDY, messages=[ASK], stop_sequences=["Zanzibar", "Paris"]
    )
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "Paris")
    assert all(block.type != "text" or "Paris" not in block.text for block in stopped.content)


def test_a_prompt_is_cached_before_it_is_needed(client: "anthropic.Anthropic") -> None:
    prompt: MessageParam = {"role": "user", "content": "A list of numbers: " + " ".join(map(str, range(4000, 4100)))}
    warm = client.messages.create(model=MODEL, max_tokens=0, messages=[prompt])
    assert (warm.content, warm.stop_reason, warm.usage.output_tokens) == ([], "max_tokens", 0)
    assert warm.usage.cache_read_input_tokens == 0
    answer = client.messages.create(model=MODEL, max_tokens=3, messages=[prompt])
    assert answer.usage.cache_read_input_tokens
    assert answer.usage.cache_read_input_tokens > 0.9 * warm.usage.input_tokens
