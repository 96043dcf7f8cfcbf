"""The store goes away and comes back: what clients see."""

import time
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from openai.types.chat import ChatCompletionChunk

from tests.fleet import Fleet, fleet

HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture
def durable_fleet(tmp_path: Path) -> Iterator[Fleet]:
    """A fleet whose store writes an append-only file before it answers."""
    with fleet(tmp_path, "--appendonly", "yes", "--appendfsync", "always") as running:
        running.worker()
        running.api()
        yield running


def stream(fleet: Fleet, tokens: int) -> Iterator[ChatCompletionChunk]:
    return iter(
        fleet.client().chat.completions.create(
            model="sim",
            messages=[{"role": "user", "content": "[[tokens 2000]]"}],
            max_tokens=tokens,
            stream=True,
        )
    )


def text_of(chunks: Iterator[ChatCompletionChunk]) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


def test_a_stream_goes_on_when_the_store_comes_back(durable_fleet: Fleet) -> None:
    expected = text_of(stream(durable_fleet, 600))
    chunks = stream(durable_fleet, 600)
    beginning = [next(chunks) for _ in range(50)]
    durable_fleet.store.kill()
    time.sleep(1)
    durable_fleet.store.start()
    assert text_of(iter(beginning)) + text_of(chunks) == expected


def test_a_stream_that_the_store_has_forgotten_ends_with_an_error(small_fleet: Fleet) -> None:
    chunks = stream(small_fleet, 2000)
    next(chunks)
    small_fleet.store.kill()
    small_fleet.store.start()
    with pytest.raises(openai.APIError, match="lost"):
        text_of(chunks)
    small_fleet.until(lambda: small_fleet.workers("serving"), "the worker to be back")
    assert small_fleet.client().chat.completions.create(model="sim", messages=HELLO, max_tokens=3)


def test_in_an_outage_new_requests_are_told_to_come_back(small_fleet: Fleet) -> None:
    small_fleet.store.kill()
    assert small_fleet.status("/ready") == 503
    assert small_fleet.status("/live") == 200
    with pytest.raises(openai.InternalServerError) as refused:
        small_fleet.client().chat.completions.create(model="sim", messages=HELLO)
    assert refused.value.status_code == 503
    assert refused.value.response.headers["retry-after"]
    small_fleet.store.start()
    small_fleet.until(lambda: small_fleet.status("/ready") == 200, "the service to be back by itself")
    assert small_fleet.client().chat.completions.create(model="sim", messages=HELLO, max_tokens=3)
