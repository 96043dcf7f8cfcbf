"""API replicas that die or drain while answers are under way: what was to be stored is stored all the same."""

import threading
from contextlib import suppress
from typing import Any

import openai
import pytest
from openai import Stream
from openai.types.chat import ChatCompletion, ChatCompletionChunk, ChatCompletionMessageParam

from shared.redis import keys
from tests.support.fleet import Fleet, Process
from tests.support.redis_types import at_once
from tests.support.sdk_types import rechecked

SLOW = ("--engine", "simulated", "--model", "sim", "--sim-step", "0.02")
TOKENS = 350
"""Seven seconds of the slow worker: longer than workers go on for a replica that no longer listens."""

OWNERS = "none,another"
"""API keys; the first is what the fleet's clients send."""


class Replicas:
    """A fleet with several API replicas, of which any can be talked to."""

    def __init__(self, fleet: Fleet, count: int) -> None:
        self.fleet = fleet
        fleet.worker(*SLOW)
        self._ports: dict[int, int] = {}
        for _ in range(count):
            replica = fleet.api("--api-keys", OWNERS, "--drain", "1")
            self._ports[replica.popen.pid] = fleet.port

    def talk_to(self, pid: int) -> Process:
        """Send what follows to the replica with this process id."""
        self.fleet.port = self._ports[pid]
        return next(process for process in self.fleet.processes if process.popen.pid == pid)

    def first(self) -> Process:
        """Talk to the first replica that lives."""
        return self.talk_to(
            next(process.popen.pid for process in self.fleet.processes[1:] if process.popen.poll() is None)
        )

    def ask(self, tokens: int = TOKENS, content: str = "", **fields: Any) -> ChatCompletion:
        messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": f"[[tokens {tokens}]]{content}"}]
        answer: ChatCompletion = self.fleet.client().chat.completions.create(
            model="sim", messages=messages, max_tokens=tokens, temperature=0, **fields
        )
        return answer

    def stream(self, tokens: int = TOKENS, **fields: Any) -> tuple[Stream[ChatCompletionChunk], ChatCompletionChunk]:
        """Begin a stream; return it with its first chunk."""
        chunks: Any = self.ask(tokens, stream=True, **fields)
        return chunks, next(chunks)

    def ask_in_vain(self, **fields: Any) -> threading.Thread:
        """Ask in the background for an answer that never comes."""

        def wait() -> None:
            with suppress(openai.APIError):
                self.ask(**fields)

        thread = threading.Thread(target=wait)
        thread.start()
        return thread

    def running(self) -> int:
        """The number of claimed jobs. Unlike the worker's record, the store knows it at once."""
        with self.fleet.redis() as store:
            return int(at_once(store.zcard(keys.inflight("sim"))))

    def stored(self, topic: str) -> list[ChatCompletion]:
        """What can be read under a topic."""
        return list(self.fleet.client().chat.completions.list(metadata={"topic": topic}))

    def until_stored(self, topic: str) -> ChatCompletion:
        self.fleet.until(lambda: self.stored(topic), f"the answer about {topic} to be stored")
        (found,) = self.stored(topic)
        return rechecked(found)

    def until_at_rest(self) -> None:
        self.fleet.until(lambda: self.running() == 0, "all jobs to end")


@pytest.fixture
def two_replicas(empty_fleet: Fleet) -> Replicas:
    return Replicas(empty_fleet, 2)


def kept(topic: str) -> dict[str, Any]:
    return {"store": True, "metadata": {"topic": topic}}


def check_equal(stored: ChatCompletion, whole: ChatCompletion) -> None:
    """All but the identity, the time and the metadata of two stored answers is the same."""
    apart = {"id": "", "created": 0, "metadata": None}
    assert stored.model_copy(update=apart) == whole.model_copy(update=apart)


def test_answers_of_a_killed_replica_are_read_from_another(two_replicas: Replicas) -> None:
    replicas, fleet = two_replicas, two_replicas.fleet
    replicas.ask(**kept("undisturbed"))
    (whole,) = replicas.stored("undisturbed")
    assert len(whole.choices[0].message.content or "") > TOKENS

    doomed = replicas.first()
    chunks, chunk = replicas.stream(n=2, **kept("streamed"))
    _plain, _ = replicas.stream(tokens=6000)
    threads = [
        replicas.ask_in_vain(**kept("not streamed")),
        replicas.ask_in_vain(content="[[exhaust at 300]]", **kept("failed")),
    ]
    fleet.until(lambda: replicas.running() == 5, "all jobs to run")
    doomed.kill()
    for thread in threads:
        thread.join()
    with pytest.raises(openai.APIConnectionError):
        list(chunks)

    replicas.first()
    check_equal(replicas.until_stored("not streamed"), whole)
    streamed = replicas.until_stored("streamed")
    assert (streamed.id, streamed.created, streamed.system_fingerprint) == (
        chunk.id,
        chunk.created,
        chunk.system_fingerprint,
    )
    assert [choice.message.content for choice in streamed.choices] == [whole.choices[0].message.content] * 2
    assert streamed.usage is not None
    assert streamed.usage.completion_tokens == 2 * TOKENS
    statuses = {
        owner: fleet.request("GET", f"/v1/chat/completions/{chunk.id}", None, {"authorization": f"Bearer {owner}"})[0]
        for owner in OWNERS.split(",")
    }
    assert statuses == {"none": 200, "another": 404}
    # The plain answer, which would take two minutes, is cancelled; the one that failed is not stored.
    replicas.until_at_rest()
    assert replicas.stored("failed") == []


def test_a_response_goes_on_without_any_replica(two_replicas: Replicas) -> None:
    replicas = two_replicas
    doomed = replicas.first()
    _chunks, chunk = replicas.stream(**kept("twice"))
    doomed.kill()
    replicas.first().kill()
    replicas.until_at_rest()
    replicas.fleet.api("--api-keys", OWNERS)
    found = replicas.until_stored("twice")
    assert (found.id, found.choices[0].finish_reason) == (chunk.id, "stop")
    assert found.usage is not None
    assert found.usage.completion_tokens == TOKENS


def test_a_draining_replica_leaves_what_is_to_be_stored_running(two_replicas: Replicas) -> None:
    replicas = two_replicas
    draining = replicas.first()
    chunks, chunk = replicas.stream(**kept("drained"))
    plain, _ = replicas.stream(tokens=6000)
    thread = replicas.ask_in_vain(**kept("drained too"))
    replicas.fleet.until(lambda: replicas.running() == 3, "all jobs to run")
    assert draining.stop() == 0
    thread.join()
    for followed in (chunks, plain):
        with pytest.raises(openai.APIError, match="shut down"):
            list(followed)
    replicas.first()
    assert replicas.until_stored("drained").id == chunk.id
    assert replicas.until_stored("drained too").choices[0].finish_reason == "stop"
    replicas.until_at_rest()


def test_a_client_that_leaves_ends_its_request_stored_or_not(two_replicas: Replicas) -> None:
    replicas = two_replicas
    chunks, _ = replicas.stream(tokens=6000, **kept("left"))
    assert list(replicas.fleet.redis().scan_iter(keys.stored("*", "*")))
    chunks.close()
    replicas.until_at_rest()
    replicas.fleet.until(
        lambda: not list(replicas.fleet.redis().scan_iter(keys.stored("*", "*"))), "the record to be deleted"
    )
    assert replicas.stored("left") == []
