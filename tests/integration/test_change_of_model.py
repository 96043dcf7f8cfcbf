"""Two models with different vocabularies: under the same name, and one after the other under the same alias."""

import json
import re
import threading
from collections.abc import Callable, Collection
from itertools import chain
from pathlib import Path
from typing import Any

from tests.support.dialects import DIALECTS
from tests.support.fleet import Fleet, Process

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"
TOKENS = 400
MESSAGES: list[Any] = [{"role": "user", "content": f"hello [[tokens {TOKENS}]]"}]
CHAT = {"model": "chat", "messages": MESSAGES, "max_tokens": TOKENS}
LONG = "hello [[tokens 5000]]"
"""Asks for more than is generated until the worker is killed, on a busy machine too."""
STREAMS = {tried.path: tried.body(LONG, "chat", **{tried.known.limit: 5000}) for tried in DIALECTS.values()}
WHY = "another vocabulary or chat template"


def worker(fleet: Fleet, vocabulary: int, *options: str, step: float = 0.01) -> Process:
    """Start a worker for a model whose words have other ids than in models of other ``vocabulary`` numbers."""
    return fleet.worker(
        "--engine", "simulated", "--model", f"chat=[[vocabulary {vocabulary}]]", "--sim-step", str(step), *options
    )


def ask(fleet: Fleet, path: str, body: dict[str, object]) -> tuple[int, str]:
    """Return the status and the whole body of a response."""
    status, _, reply = fleet.request("POST", path, json.dumps(body))
    return status, reply.decode()


def in_background(
    calls: list[Callable[[], tuple[int, str]]],
) -> tuple[list[threading.Thread], dict[int, tuple[int, str]]]:
    replies: dict[int, tuple[int, str]] = {}

    def run(number: int) -> None:
        replies[number] = calls[number]()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    return threads, replies


def journals(fleet: Fleet) -> dict[bytes, int]:
    """The journals, among them those of jobs that ended in the last minute, and the number of events in each."""
    with fleet.redis() as store:
        # Lists; strings say how long a journal is needed.
        return {name: int(store.llen(name)) for name in store.scan_iter("vinoqueue:journal:*", _type="list")}


def wait_for_tokens(fleet: Fleet, jobs: int, ended: Collection[bytes] = ()) -> None:
    """Wait until ``jobs`` jobs have tokens. ``ended`` are the journals of earlier ones."""

    def started() -> int:
        # The first event says that the job has started.
        return sum(events > 2 for name, events in journals(fleet).items() if name not in ended)

    fleet.until(lambda: started() == jobs, "all to have tokens")


def test_a_stream_is_not_continued_with_another_vocabulary(empty_fleet: Fleet) -> None:
    first = worker(empty_fleet, 0)
    empty_fleet.api()
    calls: list[Callable[[], tuple[int, str]]] = [
        *(
            lambda path=path, body=body: ask(empty_fleet, path, {**body, "stream": True})
            for path, body in STREAMS.items()
        ),
        lambda: ask(empty_fleet, "/v1/chat/completions", STREAMS["/v1/chat/completions"]),
    ]
    threads, replies = in_background(calls)
    wait_for_tokens(empty_fleet, len(calls))
    first.kill()
    worker(empty_fleet, 7)
    for thread in threads:
        thread.join()
    *streamed, whole = (replies[number] for number in range(len(calls)))
    assert [status for status, _ in streamed] == len(streamed) * [200]
    assert whole[0] == 500
    for path, (_, text) in zip((*STREAMS, "not streamed"), (*streamed, whole), strict=True):
        assert WHY in text, (path, text[-500:])
    ends = {path: text.rstrip().rsplit("\n\n", 1)[-1] for path, (_, text) in zip(STREAMS, streamed, strict=True)}
    assert ends["/v1/messages"].startswith("event: error\n")
    assert ends["/v1/responses"].startswith("event: response.failed\n")


def test_a_stream_is_continued_by_the_worker_with_its_vocabulary(empty_fleet: Fleet) -> None:
    undisturbed = worker(empty_fleet, 0)
    empty_fleet.api()
    expected = ask(empty_fleet, "/v1/chat/completions", CHAT)
    assert expected[0] == 200
    undisturbed.stop()
    ended = journals(empty_fleet)
    first = worker(empty_fleet, 0, step=0.2)  # so slow that the others have started before the ends
    threads, replies = in_background(8 * [lambda: ask(empty_fleet, "/v1/chat/completions", CHAT)])
    wait_for_tokens(empty_fleet, 8, ended)
    for vocabulary in (0, 7, 8):
        worker(empty_fleet, vocabulary)
    first.kill()
    for thread in threads:
        thread.join()
    texts = {json.loads(reply)["choices"][0]["message"]["content"] for _, reply in (*replies.values(), expected)}
    assert len(texts) == 1


def names_in_the_runbook() -> list[list[str]]:
    """Return the names of each command of the runbook that starts a worker, in order."""
    section = OPERATIONS.read_text().partition("\n## Change the model of a fleet\n")[2].partition("\n## ")[0]
    commands = re.findall(r"^ {4,}vinoqueue worker .*--served-model-name (.*)$", section, re.MULTILINE)
    return [command.split() for command in commands]


def test_the_model_of_a_fleet_is_changed_as_the_runbook_says(empty_fleet: Fleet) -> None:
    old_names, trial_names, new_names = names_in_the_runbook()
    old, new, alias = old_names[0], new_names[0], old_names[1]
    assert [trial_names, new_names[1:]] == [[new], [alias]]
    fleet, done = empty_fleet, threading.Event()
    old_workers = [worker(fleet, 0, "--served-model-name", *old_names) for _ in range(2)]
    fleet.api()

    def answer(name: str) -> tuple[str, str]:
        status, reply = ask(fleet, "/v1/chat/completions", {**CHAT, "model": name, "max_tokens": 40})
        assert status == 200, reply
        document = json.loads(reply)
        return document["model"], document["choices"][0]["message"]["content"]

    seen: list[list[tuple[str, str]]] = [[] for _ in range(8)]
    failures: list[AssertionError] = []

    def client(answers: list[tuple[str, str]]) -> None:
        while not done.is_set():
            try:
                answers.append(answer(alias))
            except AssertionError as failure:
                failures.append(failure)

    threads = [threading.Thread(target=client, args=(answers,)) for answers in seen]
    for thread in threads:
        thread.start()
    try:
        worker(fleet, 7, "--served-model-name", *trial_names)
        trial = answer(new)
        assert answer(alias)[0] == old
        new_worker = worker(fleet, 7, "--served-model-name", *new_names)
        fleet.until(lambda: answer(alias)[0] == new, "the alias to move")
        fleet.until(
            lambda: not any(one.get("used") for one in fleet.workers() if one["model"] == old), "the old to idle"
        )
        for process in old_workers:
            assert process.stop() == 0
        count = len(seen[0])
        fleet.until(lambda: len(seen[0]) > count + 1, "requests after the end")
        # And back.
        old_workers = [worker(fleet, 0, "--served-model-name", *old_names) for _ in range(2)]
        assert new_worker.stop() == 0
        fleet.until(lambda: answer(alias)[0] == old, "the alias to return")
    finally:
        done.set()
        for thread in threads:
            thread.join()
    answers = list(chain.from_iterable(seen))
    assert failures == []
    assert all(len({name for name, _ in one}) == 2 for one in seen)
    texts = dict(answers)
    assert set(answers) == set(texts.items()), "a text is of the other model"
    assert texts[new] == trial[1] != texts[old]
