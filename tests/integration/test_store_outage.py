"""The store goes away and comes back: what clients see."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import openai
import pytest
from openai.types.chat import ChatCompletionChunk, ChatCompletionMessageParam

from tests.support.fleet import SIMULATED, Fleet, fleet, text_of
from tests.support.fleet_fixture import fleet_fixture
from tests.support.redis_types import at_once

MEGABYTE = 2**20
HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hello"}]


@pytest.fixture
def durable_fleet(tmp_path: Path) -> Iterator[Fleet]:
    """A fleet whose store writes an append-only file before it answers. test_store_rules.py restarts older servers."""
    with fleet(tmp_path, "--appendonly", "yes", "--appendfsync", "always") as running:
        running.worker()
        running.api()
        yield running


forgetful_fleet = fleet_fixture(lease=None)
"""A fleet whose store starts empty; tests leave it running."""


def stream(fleet: Fleet, tokens: int) -> Iterator[ChatCompletionChunk]:
    return iter(
        fleet.client().chat.completions.create(
            model="sim",
            messages=[{"role": "user", "content": "[[tokens 2000]]"}],
            max_tokens=tokens,
            stream=True,
        )
    )


def background(fleet: Fleet, tokens: int) -> Iterator[str]:
    """The text of a background response, as it is streamed."""
    events = fleet.client().responses.create(
        model="sim", input="[[tokens 2000]]", max_output_tokens=tokens, background=True, stream=True
    )
    return (event.delta for event in events if event.type == "response.output_text.delta")


def test_streams_go_on_when_the_store_comes_back(durable_fleet: Fleet) -> None:
    expected = text_of(stream(durable_fleet, 600))
    chunks, kept = stream(durable_fleet, 600), background(durable_fleet, 600)
    beginning, kept_beginning = [next(chunks) for _ in range(50)], [next(kept) for _ in range(50)]
    durable_fleet.store.kill()
    time.sleep(1)
    durable_fleet.store.start()
    assert text_of(iter(beginning)) + text_of(chunks) == expected
    assert "".join(kept_beginning) + "".join(kept) == expected


def test_a_stream_that_the_store_has_forgotten_ends_with_an_error(forgetful_fleet: Fleet) -> None:
    chunks = stream(forgetful_fleet, 2000)
    next(chunks)
    forgetful_fleet.store.kill()
    forgetful_fleet.store.start()
    with pytest.raises(openai.APIError, match="lost"):
        text_of(chunks)
    forgetful_fleet.until(lambda: forgetful_fleet.workers("serving"), "the worker to be back")
    assert forgetful_fleet.client().chat.completions.create(model="sim", messages=HELLO, max_tokens=3)


def test_new_requests_get_a_retry_after_in_an_outage_which_is_logged_once(forgetful_fleet: Fleet) -> None:
    def logged(words: str) -> list[int]:
        """How often each process has said that."""
        return [process.log.read_text().count(words) for process in forgetful_fleet.processes]

    def works() -> object:
        reported = logged("the store fails") == logged("the store works again")
        # A worker whose heartbeat was not due in the outage is in the empty store with its next one.
        return reported and forgetful_fleet.status("/ready") == 200 and forgetful_fleet.workers("serving")

    forgetful_fleet.until(works, "the service to work")
    once_more = [count + 1 for count in logged("the store fails")]
    forgetful_fleet.store.kill()
    assert (forgetful_fleet.status("/ready"), forgetful_fleet.status("/ready/replica")) == (503, 503)
    assert forgetful_fleet.status("/live") == 200
    with pytest.raises(openai.InternalServerError) as refused:
        forgetful_fleet.client().chat.completions.create(model="sim", messages=HELLO)
    assert refused.value.status_code == 503
    assert refused.value.response.headers["retry-after"]
    forgetful_fleet.until(lambda: logged("the store fails") == once_more, "the outage to be noticed")
    forgetful_fleet.store.start()
    forgetful_fleet.until(works, "the service to be back by itself")
    assert forgetful_fleet.client().chat.completions.create(model="sim", messages=HELLO, max_tokens=3)
    assert logged("the store fails") == once_more


def test_a_store_full_of_our_own_queue_empties_itself(empty_fleet: Fleet) -> None:
    options = ("--engine", "simulated", "--model", "sim=[[context 1000000]]", "--sim-step", "0.02")
    empty_fleet.worker(*options, "--max-batch", "2")
    empty_fleet.api("--max-wait", "3600")  # on a slow machine, the queue would refuse before the store does
    store = empty_fleet.redis()
    long = {"role": "user", "content": "[[tokens 100]]" + "x" * (MEGABYTE // 4)}
    body = json.dumps({"model": "sim", "messages": [long], "max_tokens": 20})
    store.config_set("maxmemory", at_once(store.info("memory"))["used_memory"] + 8 * MEGABYTE)

    def ask() -> tuple[int, dict[str, str], bytes]:
        return empty_fleet.request("POST", "/v1/chat/completions", body)

    with ThreadPoolExecutor(60) as clients:
        asked = [clients.submit(ask) for _ in range(60)]
        empty_fleet.until(lambda: any(one.done() and one.result()[0] == 503 for one in asked), "the store to be full")
        # Now for good: nothing may depend on room that others make.
        store.config_set("maxmemory", 1)
        answers = [one.result() for one in asked]
        assert empty_fleet.workers("serving"), "the worker vanished from the registry"
        status, _, answer = ask()
        assert status == 503
        assert b"out of memory" in answer
    texts = [json.loads(answer)["choices"][0] for status, _, answer in answers if status == 200]
    assert len(texts) > 2
    assert {text["finish_reason"] for text in texts} == {"length"}
    assert len({text["message"]["content"] for text in texts}) == 1
    refused = [headers for status, headers, _ in answers if status != 200]
    assert {status for status, _, _ in answers} == {200, 503}
    assert all(headers["retry-after"] for headers in refused)
    store.config_set("maxmemory", 0)
    assert ask()[0] == 200


def test_a_wrong_password_is_waited_out(empty_fleet: Fleet) -> None:
    store = empty_fleet.redis()
    store.config_set("requirepass", "another")
    worker = empty_fleet.start("worker", *SIMULATED)
    api = empty_fleet.api()
    assert empty_fleet.status("/ready") == 503
    status, headers, _ = empty_fleet.request(
        "POST", "/v1/chat/completions", json.dumps({"model": "sim", "messages": HELLO})
    )
    assert status == 503
    assert headers["retry-after"]
    empty_fleet.until(lambda: "Authentication" in worker.log.read_text(), "the worker to say what is wrong")
    assert worker.popen.poll() is None
    assert api.popen.poll() is None
    store.config_set("requirepass", "")
    empty_fleet.until(lambda: empty_fleet.status("/ready") == 200, "the service to come up by itself")
    assert empty_fleet.client().chat.completions.create(model="sim", messages=HELLO, max_tokens=3)
