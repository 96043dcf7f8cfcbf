"""Prefix routing through the API and a real store: prompts with a shared prefix go to the same worker."""

from collections.abc import Iterator

import openai
import pytest
from openai.types.chat import ChatCompletionChunk, ChatCompletionMessageParam

from shared.redis import keys
from tests.support.fleet import SIMULATED, Fleet
from tests.support.redis_types import at_once

NAMES = ("w1", "w2", "w3")


class ChatClient:
    """Sends long prompts to three workers, each with an answer that lasts until the test ends."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.streams: list[openai.Stream[ChatCompletionChunk]] = []
        self._store = fleet.redis()
        self._known: set[str] = set()

    def ask(self, beginning: str) -> str:
        """Send a request; return the worker that takes it."""
        messages: list[ChatCompletionMessageParam] = [
            {"role": "system", "content": f"{beginning} " * 500},
            {"role": "user", "content": "[[tokens 100000]]"},
        ]
        chats = self.fleet.client().chat.completions
        self.streams.append(chats.create(model="sim", messages=messages, stream=True))
        claimed = self._claimed()
        (job,) = claimed.keys() - self._known
        self._known.add(job)
        return claimed[job]

    def _claimed(self) -> dict[str, str]:
        """The jobs that workers hold."""
        jobs: list[bytes] = at_once(self._store.zrange(keys.inflight("sim"), 0, -1))
        return {
            job: at_once(self._store.hget(keys.claims("sim"), job)).decode().split()[1]
            for job in map(bytes.decode, jobs)
        }


@pytest.fixture
def asker(empty_fleet: Fleet) -> Iterator[ChatClient]:
    for name in NAMES:
        # With few looks of their own, workers take what they are woken for, however slow the machine is.
        empty_fleet.worker(*SIMULATED, "--worker-id", name, "--poll", "10")
    asker = ChatClient(empty_fleet)
    yield asker
    for stream in asker.streams:
        stream.close()


def test_the_same_beginning_goes_to_the_same_worker(asker: ChatClient) -> None:
    asker.fleet.api()
    one, two = asker.ask("one"), asker.ask("two")
    assert one != two
    # The third worker is idle all the time.
    assert (asker.ask("one"), asker.ask("two"), asker.ask("one")) == (one, two, one)
    page = asker.fleet.request("GET", "/metrics")[2].decode()
    assert 'vinoqueue_prefix_routed_jobs_total{model="sim",route="new"} 2.0' in page
    assert 'vinoqueue_prefix_routed_jobs_total{model="sim",route="followed"} 3.0' in page


def test_switched_off_every_request_goes_to_the_least_loaded(asker: ChatClient) -> None:
    asker.fleet.api("--no-prefix-routing")
    assert {asker.ask("one"), asker.ask("one"), asker.ask("one")} == set(NAMES)


def test_when_the_worker_that_has_a_beginning_dies_another_takes_over(asker: ChatClient) -> None:
    asker.fleet.api()
    one = asker.ask("one")
    asker.fleet.processes[NAMES.index(one)].kill()
    other = asker.ask("one")
    assert other != one
    assert asker.ask("one") == other
