"""The fleet view over real HTTP: who may see it, and what it shows while a worker dies."""

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from tests.support.eventually import PATIENCE
from tests.support.fleet import SIMULATED, Fleet, fleet

CHAT = {"model": "sim", "messages": [{"role": "user", "content": "[[tokens 220]]"}], "stream": True}
PATHS = ("/v1/fleet", "/v1/fleet/events")


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Fleet, dict[str, str]]]:
    """A fleet of two workers that has keys, and the headers of one with the scope ``admin``."""
    with fleet(tmp_path_factory.mktemp("shown")) as running:
        admin = running.key("create", "--scope", "admin")
        # Slow, and each with fewer slots than there are chats: both have some at the same time, on a busy machine too.
        running.add_workers(2, *SIMULATED, "--max-batch", "7", "--sim-step", "0.04")
        running.api()
        yield running, {"authorization": f"Bearer {admin}", "content-type": "application/json"}


@contextmanager
def events(running: Fleet, headers: dict[str, str]) -> Iterator[Iterator[dict[str, Any]]]:
    """The documents of one stream."""
    with closing(http.client.HTTPConnection("127.0.0.1", running.port, timeout=PATIENCE)) as connection:
        connection.request("GET", "/v1/fleet/events", headers=headers)
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("content-type")) == (200, "text/event-stream; charset=utf-8")
        yield (json.loads(line.removeprefix(b"data: ")) for line in answer if line.startswith(b"data: "))


def test_only_a_key_with_the_scope_sees_it(shown: tuple[Fleet, dict[str, str]]) -> None:
    running, _ = shown
    plain = running.key("create")
    running.until(
        lambda: running.request("GET", "/v1/models", None, {"api-key": plain})[0] == 200, "the key to be known"
    )
    for path in PATHS:
        status, _, body = running.request("GET", path)
        assert (status, json.loads(body)["error"]["code"]) == (401, "invalid_api_key")
        status, _, body = running.request("GET", path, None, {"api-key": plain})
        error = json.loads(body)["error"]
        assert (status, error["code"]) == (403, "insufficient_permissions")
        assert "Missing scopes: admin" in error["message"]


def test_an_open_service_shows_it_to_anybody(session_fleet: Fleet) -> None:
    status, _, body = session_fleet.request("GET", "/v1/fleet")
    assert status == 200
    assert json.loads(body)["object"] == "fleet"


def test_the_death_of_a_worker_and_where_its_requests_go(shown: tuple[Fleet, dict[str, str]]) -> None:
    running, headers = shown

    def chat() -> None:
        assert b"[DONE]" in running.request("POST", "/v1/chat/completions", json.dumps(CHAT), headers)[2]

    chats = [threading.Thread(target=chat) for _ in range(8)]
    with events(running, headers) as documents:
        for one in chats:
            one.start()
        held = next(
            held
            for document in documents
            if len(
                held := {worker["pid"]: {one["request"] for one in worker["running"]} for worker in document["workers"]}
            )
            == 2
            and all(held.values())
            and sum(map(len, held.values())) == 8
        )
        victim = next(process for process in running.processes if process.popen.pid in held)
        name = next(one["id"] for one in running.workers() if one["pid"] == victim.popen.pid)
        victim.kill()
        statuses, moves = [], {}
        for document in documents:
            statuses += [worker["status"] for worker in document["workers"] if worker["id"] == name]
            moves = {move["request"]: move for move in document["moves"] if move["to"] is not None}
            if "gone" in statuses and len(moves) == len(held[victim.popen.pid]):
                break
    assert set(moves) == held[victim.popen.pid]
    assert all(move["from"] == name != move["to"] and move["reason"] == "worker_lost" for move in moves.values())
    assert "silent" in statuses or statuses[0] == "serving"
    for one in chats:
        one.join()
    times: dict[str, float] = {}

    def all_counted() -> bool:
        (model,) = json.loads(running.request("GET", "/v1/fleet", None, headers)[2])["models"]
        times.update(model["time_to_first_token"])
        return times["requests"] == 8

    # The replica's registry record carries them.
    running.until(all_counted, "the times to first token")
    assert times["p95"] >= times["p50"] > 0
