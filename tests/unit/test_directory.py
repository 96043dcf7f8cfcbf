"""What a replica believes about the fleet, in an outage of the store too."""

import time
from collections.abc import AsyncIterator

import msgspec
import pytest
from arq.connections import ArqRedis
from fakeredis import FakeAsyncRedis, FakeServer
from redis.exceptions import ConnectionError

from api.directory import Directory
from shared.registry import WorkerInfo, announce_worker, withdraw_worker

WORKER = WorkerInfo(
    id="w1", host="h", pid=1, model="tiny", status="serving", engine="simulated", device="CPU", fingerprint="fp",
    started=0.0, slots=4, context_length=100,
)  # fmt: skip


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


@pytest.fixture
async def redis(server: FakeServer) -> AsyncIterator[ArqRedis]:
    fake = FakeAsyncRedis(server=server)
    yield ArqRedis(pool_or_conn=fake.connection_pool, job_deserializer=msgspec.msgpack.decode)
    await fake.aclose()


async def test_a_model_is_without_worker_from_when_its_last_one_was_seen(redis: ArqRedis) -> None:
    directory = Directory(redis)
    await announce_worker(redis, WORKER, lease=60)
    await directory.refresh()
    assert directory.without_worker_for("tiny") == 0
    await withdraw_worker(redis, WORKER)
    await directory.refresh()
    assert 0 < directory.without_worker_for("tiny") < 60


async def test_an_outage_of_the_store_is_no_absence_of_workers(
    redis: ArqRedis, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = Directory(redis)
    await announce_worker(redis, WORKER, lease=60)
    await directory.refresh()
    server.connected = False
    with pytest.raises(ConnectionError):
        await directory.refresh()
    directory.reachable = False
    server.connected = True
    # The worker comes back a little later than this replica, after an hour.
    await withdraw_worker(redis, WORKER)
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 3600)
    await directory.refresh()
    assert directory.without_worker_for("tiny") == 0
