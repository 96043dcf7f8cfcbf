"""The registry of workers, API replicas and models: records of other versions, garbage, and clocks that differ."""

import logging
import time

import msgspec
import pytest
from arq.connections import ArqRedis

from api.models.directory import Directory
from shared.protocol.registry import (
    MAX_MODELS,
    MODEL_TTL,
    ReplicaInfo,
    WorkerInfo,
    announce,
    read_registry,
)
from shared.redis import keys, records
from tests.support.redis_types import awaitable

WORKER = WorkerInfo(
    id="w1", host="h", pid=1, model="tiny", status="serving", engine="simulated", device="CPU", fingerprint="fp",
    started=0.0, slots=4, context_length=100,
)  # fmt: skip
REPLICA = ReplicaInfo(id="api-1", host="h", pid=1, address="", started=0.0)
HOUR = 3600


def named(worker_id: str) -> WorkerInfo:
    return msgspec.structs.replace(WORKER, id=worker_id)


@pytest.fixture(autouse=True)
def nothing_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_reported", set[tuple[str | bytes, str]]())


async def write_worker(redis: ArqRedis, worker_id: bytes, record: bytes) -> None:
    await redis.zadd(keys.WORKERS, {worker_id: time.time() + 60})
    await redis.set(keys.worker("").encode() + worker_id, record)


async def seen(redis: ArqRedis) -> list[str]:
    return [worker.id for worker in (await read_registry(redis)).workers]


@pytest.mark.parametrize(
    "record",
    [
        b"{",
        b"",
        b"null",
        b"[]",
        b'{"id": "evil"}',
        b"\xff",
        msgspec.json.encode(named("somebody else")),
        msgspec.json.encode(named("evil")).replace(b'"slots":4', b'"slots":"4"'),
        msgspec.json.encode(named("evil")).replace(b'"slots":4', b'"slots":' + b"9" * 400),
        msgspec.json.encode(named("evil")).replace(b'"host":"h"', b'"host":"\xff"'),
    ],
)
async def test_a_worker_that_cannot_be_read_is_left_out_and_reported_once(
    redis: ArqRedis, record: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    await announce(redis, WORKER, lease=60)
    await write_worker(redis, b"evil", record)
    for _ in range(3):
        assert await seen(redis) == ["w1"]
    (report,) = [line for line in caplog.records if line.levelno == logging.ERROR]
    assert keys.worker("evil") in report.getMessage()


@pytest.mark.parametrize("record", [b"{", b'{"name":1}'])
async def test_a_model_that_cannot_be_read_is_left_out(redis: ArqRedis, record: bytes) -> None:
    await announce(redis, WORKER, lease=60)
    await awaitable(redis.hset(keys.MODELS, mapping={b"evil": record}))
    assert list((await read_registry(redis)).models) == ["tiny"]


async def test_a_worker_with_a_status_of_a_newer_version_is_alive_but_does_not_serve(redis: ArqRedis) -> None:
    await announce(redis, WORKER, lease=60)
    await announce(redis, msgspec.structs.replace(WORKER, status="warming-up"), lease=60)
    directory = Directory(redis)
    await directory.refresh()
    assert [worker.status for worker in directory.fleet.workers] == ["warming-up"]
    assert directory.without_worker_for("tiny") == 0
    assert directory.fleet.serving() == {}


async def test_the_dead_are_forgotten_after_a_lease_when_the_clock_of_the_store_was_set_back(redis: ArqRedis) -> None:
    await announce(redis, named("dead"), lease=2)
    # What the store's clock has written before it was set back by an hour.
    await redis.zadd(keys.WORKERS, {"dead": time.time() + HOUR})
    await redis.pexpire(keys.worker("dead"), HOUR * 1000)
    await announce(redis, WORKER, lease=2)
    assert await redis.pttl(keys.worker("dead")) <= 2000
    assert (await redis.zscore(keys.WORKERS, "dead") or 0) < time.time() + HOUR / 2


async def test_models_are_forgotten_after_an_hour(redis: ArqRedis) -> None:
    await announce(redis, msgspec.structs.replace(WORKER, id="w0", model="retired"), lease=2)
    await redis.zadd(keys.MODELS_SEEN, {"retired": time.time() - MODEL_TTL - 1})
    assert set((await read_registry(redis)).models) == {"retired"}
    await announce(redis, WORKER, lease=2)
    assert set((await read_registry(redis)).models) == {"tiny"}
    assert await awaitable(redis.zrange(keys.MODELS_SEEN, 0, -1)) == [b"tiny"]


async def test_the_number_of_models_is_bounded(redis: ArqRedis) -> None:
    """Anyone with a worker's password can write them, and each costs every reader of the fleet a script call."""
    record = '{"name": "x", "created": 1, "context_length": 1}'
    await awaitable(redis.hset(keys.MODELS, mapping={f"evil-{number}": record for number in range(2 * MAX_MODELS)}))
    assert len((await read_registry(redis)).models) == MAX_MODELS
    await announce(redis, WORKER, lease=2)
    assert await awaitable(redis.hlen(keys.MODELS)) == await awaitable(redis.zcard(keys.MODELS_SEEN)) == MAX_MODELS
    assert "tiny" in (await read_registry(redis)).models
