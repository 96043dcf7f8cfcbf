"""The worker's heartbeat."""

from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, cast

import pytest
from redis.exceptions import ConnectionError

from shared.protocol.queue import JobQueue
from shared.redis import keys
from tests.support.job_rig import ActiveJobs, read_payload
from tests.support.jobs import WORKER, job
from tests.support.wall_clock import WallClock
from worker.jobs.heartbeat import Heartbeat
from worker.jobs.registry_record import RegistryRecord


async def test_leases_are_renewed_although_the_record_is_not(
    wall_clock: WallClock, queue: JobQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any, **__: Any) -> None:
        raise ConnectionError("the transfer of something large")

    monkeypatch.setattr("worker.jobs.heartbeat.announce", fail)
    await queue.enqueue([job("a")], limit=1)
    (claim,), _ = await queue.claim("w1", used=0, slots=1)
    jobs = ActiveJobs()
    heartbeat = Heartbeat(queue, "w1", jobs, cast(RegistryRecord, SimpleNamespace(current=lambda: WORKER)), lease=60)
    expiry = await queue.redis.zscore(keys.inflight("tiny"), "a")
    assert expiry is not None
    with jobs.registered(claim, read_payload(claim)):
        wall_clock.advance(30)
        with pytest.raises(ConnectionError):
            await heartbeat.renew()
    assert await queue.redis.zscore(keys.inflight("tiny"), "a") == expiry + 30_000


async def test_a_job_that_ends_during_a_renewal_is_not_reported_as_lost(
    queue: JobQueue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await queue.enqueue([job("a")], limit=1)
    (claim,), _ = await queue.claim("w1", used=0, slots=1)
    jobs = ActiveJobs()
    heartbeat = Heartbeat(queue, "w1", jobs, cast(RegistryRecord, SimpleNamespace(current=lambda: WORKER)), lease=60)
    with ExitStack() as running:
        running.enter_context(jobs.registered(claim, read_payload(claim)))

        async def ended(*_: Any) -> list[str]:
            running.close()
            return ["a"]

        monkeypatch.setattr(queue, "renew", ended)
        await heartbeat.renew()
    assert "lease lost" not in caplog.text
