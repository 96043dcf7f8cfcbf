"""Records in the store that nobody can read, written by whoever may write there: the service goes on."""

import json
import time

import pytest

from tests.support.fleet import Fleet

ASK = json.dumps({"model": "sim", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 3})


NEWER = {
    "id": "newer", "host": "h", "pid": 1, "model": "next", "status": "warming-up", "engine": "e", "device": "d",
    "fingerprint": "f", "started": 0.0, "slots": 1,
}  # fmt: skip


def leave_records(fleet: Fleet) -> None:
    """Write what nobody can read, and a worker of a newer version."""
    lease_end = time.time() + 60
    with fleet.redis() as store:
        store.hset("vinoqueue:models", "evil", "{")
        store.hset("vinoqueue:models", mapping={b"\xff": b"{}"})
        store.zadd("vinoqueue:workers", {b"\xff": lease_end, "evil": lease_end, "newer": lease_end})
        store.zadd("vinoqueue:replicas", {b"\xff": lease_end, "evil": lease_end})
        store.set("vinoqueue:worker:evil", "{")
        store.set("vinoqueue:replica:evil", "[]")
        store.set("vinoqueue:worker:newer", json.dumps(NEWER))


@pytest.fixture
def attacked_fleet(empty_fleet: Fleet) -> Fleet:
    """A simulated worker, and an API replica that started on a store in which others have left records."""
    empty_fleet.worker()
    leave_records(empty_fleet)
    empty_fleet.api()
    return empty_fleet


def test_replicas_start_and_serve_despite_unreadable_records(attacked_fleet: Fleet) -> None:
    fleet = attacked_fleet
    replica = fleet.processes[-1]

    def served_and_reported() -> bool:
        leave_records(fleet)
        assert fleet.request("POST", "/v1/chat/completions", ASK)[0] == 200
        log, health = replica.log.read_text(), json.loads(fleet.request("GET", "/health")[2])
        reported = all(f"vinoqueue:{name}" in log for name in ("models evil", "worker:evil", "replica:evil"))
        return reported and health["workers"] == 2

    fleet.until(lambda: fleet.status("/ready") == 200, "readiness")
    fleet.until(served_and_reported, "the records to be reported")
    assert replica.log.read_text().count("vinoqueue:worker:evil") == 1
    assert all(process.popen.poll() is None for process in fleet.processes), fleet.logs()
