"""Stores that evict keys, and clusters: what operators are shown, and that a lost key opens nothing."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.redis import keys
from tests.support.fleet import PATIENT, Fleet, fleet, free_port
from tests.support.redis_types import at_once, command

ASK = json.dumps({"model": "sim", "messages": [{"role": "user", "content": "hello"}]})
JSON = {"content-type": "application/json"}
EVICTS = "The store deletes keys when its memory is full (maxmemory-policy allkeys-random)"
CLUSTER = "The store is a cluster, which is not supported"


@pytest.fixture
def evicting(tmp_path: Path) -> Iterator[Fleet]:
    """A store with little memory that evicts any key."""
    with fleet(tmp_path, "--maxmemory", "8mb", "--maxmemory-policy", "allkeys-random", lease=PATIENT) as running:
        yield running


def problems(running: Fleet, key: str = "") -> list[str]:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    found: list[str] = json.loads(running.request("GET", "/v1/fleet", None, headers)[2])["store_problems"]
    return found


def test_an_evicting_store_is_reported(evicting: Fleet) -> None:
    api, worker = evicting.api(), evicting.worker()
    evicting.until(lambda: problems(evicting), "the page to show it")
    assert problems(evicting)[0].startswith(EVICTS)
    evicting.until(lambda: EVICTS in api.log.read_text() and EVICTS in worker.log.read_text(), "the logs")
    code, text = evicting.command("status")
    assert (code, f"Warning: {EVICTS}" in text) == (0, True)


def test_another_policy_is_seen_while_a_replica_runs(patient_fleet: Fleet) -> None:
    log = patient_fleet.api().log
    assert problems(patient_fleet) == []
    with patient_fleet.redis() as client:
        client.config_set("maxmemory", "100mb")
        client.config_set("maxmemory-policy", "allkeys-random")
    patient_fleet.until(lambda: EVICTS in log.read_text(), "the log")
    with patient_fleet.redis() as client:
        client.config_set("maxmemory-policy", "noeviction")
    patient_fleet.until(lambda: not problems(patient_fleet), "the page to show it no longer")


@pytest.mark.parametrize("loses", ["the keys", "the mark", "everything by eviction"])
def test_lost_keys_open_no_replica(evicting: Fleet, loses: str) -> None:
    running = evicting
    key = running.key("create", "--scope", "admin")
    first = running.api()
    headers = JSON | {"authorization": f"Bearer {key}"}
    assert running.request("POST", "/v1/chat/completions", ASK, JSON)[0] == 401
    assert running.request("POST", "/v1/chat/completions", ASK, headers)[0] == 404
    with running.redis() as client:
        running.until(lambda: at_once(client.exists(keys.CLOSED)), "the mark")
        if loses == "the keys":
            client.delete(keys.API_KEYS)
        elif loses == "the mark":
            client.delete(keys.CLOSED)
        first.stop()
        running.processes.remove(first)
        if loses == "everything by eviction":
            for number in range(100_000):
                if not client.exists(keys.API_KEYS, keys.CLOSED):
                    break
                client.set(f"filler-{number}", b"x" * 100_000)
            assert not client.exists(keys.API_KEYS, keys.CLOSED)
    second = running.api()
    assert running.request("POST", "/v1/chat/completions", ASK, JSON)[0] == 401
    if loses != "the mark":
        running.until(lambda: "the store has lost them" in second.log.read_text(), "the log")
        assert running.request("POST", "/v1/chat/completions", ASK, headers)[0] == 401


def test_a_cluster_is_reported(tmp_path: Path) -> None:
    with fleet(tmp_path, "--cluster-enabled", "yes", "--cluster-port", str(free_port())) as running:
        with running.redis() as client:
            command(client, "CLUSTER", "ADDSLOTSRANGE", "0", "16383")
            running.until(lambda: b"cluster_state:ok" in command(client, "CLUSTER", "INFO"), "the cluster")
        api = running.api()
        running.until(lambda: CLUSTER in api.log.read_text(), "the log")
        running.until(lambda: problems(running), "the page to show it")
        assert running.request("POST", "/v1/chat/completions", ASK, JSON)[0] in (404, 503)
        _, text = running.command("status")
        assert f"Warning: {CLUSTER}" in text
        worker = running.start("worker", "--engine", "simulated", "--model", "sim")
        running.until(lambda: CLUSTER in worker.log.read_text(), "the worker's log")
        running.processes.remove(worker)
        worker.kill()
