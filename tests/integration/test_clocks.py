"""Processes whose wall clocks differ: only the store's clock counts between them."""

import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from arq.connections import ArqRedis

from bench.store import Store
from shared.registry import WorkerInfo, announce_worker, survey
from shared.store import connect
from tests.fleet import free_port

HOUR = 3600
WORKER = WorkerInfo(
    id="w1", host="h", pid=1, model="tiny", status="serving", engine="simulated", device="CPU", fingerprint="fp",
    started=0.0, slots=4, context_length=100,
)  # fmt: skip


@pytest.fixture
async def redis(tmp_path: Path) -> AsyncIterator[ArqRedis]:
    """A client of a real store, whose clock is not this process's."""
    store = Store(tmp_path, free_port())
    store.start()
    client = connect(store.url)
    try:
        yield client
    finally:
        await client.aclose(close_connection_pool=True)
        store.kill()


@pytest.fixture(params=[-HOUR, 120, HOUR])
def skew(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    """Set this process's wall clock wrong, by so many seconds."""
    seconds: float = request.param
    true_time = time.time
    monkeypatch.setattr(time, "time", lambda: true_time() + seconds)
    return seconds


async def test_a_worker_whose_clock_is_wrong_erases_nobody(
    redis: ArqRedis, skew: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = time.time
    monkeypatch.setattr(time, "time", lambda: wrong() - skew)
    await announce_worker(redis, WORKER, lease=60)
    monkeypatch.setattr(time, "time", wrong)
    await announce_worker(redis, msgspec.structs.replace(WORKER, id="w2"), lease=60)
    monkeypatch.setattr(time, "time", lambda: wrong() - skew)
    await announce_worker(redis, msgspec.structs.replace(WORKER, id="w3"), lease=60)
    assert [worker.id for worker in (await survey(redis)).workers] == ["w1", "w2", "w3"]
