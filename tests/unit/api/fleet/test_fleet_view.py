"""The fleet view: occupancy of the queues, moves between workers, times to first token, and who reads the store."""

import json
import math
import time
from typing import Any

import msgspec
import pytest
from arq.connections import ArqRedis

from api.base.first_token_times import WINDOW, FirstTokenTimes, combined, percentile
from api.batches.record import Batch, Counts
from api.batches.store import BatchStore
from api.fleet.moves import MoveLog
from api.fleet.watch import FleetWatch, Watcher
from api.models.directory import Directory
from shared.protocol.queue import JobQueue
from shared.protocol.queue.occupancy import Holder, Occupancy, OccupancyReader
from shared.protocol.queue.texts import queue_keys
from shared.protocol.registry import ReplicaInfo, announce_replica, announce_worker
from tests.support.jobs import WORKER, enqueue, job
from tests.support.wall_clock import WallClock


async def test_occupancy_tells_tiers_and_holders_apart(redis: ArqRedis, queue: JobQueue) -> None:
    for name, tier in (("a", "default"), ("b", "priority"), ("c", "flex"), ("d", None)):
        one = job(name)
        request = msgspec.structs.replace(one.request, tier=tier)
        await queue.enqueue([msgspec.structs.replace(one, request=request)], limit=100)
    await queue.claim("w1", used=0, slots=2)
    found = await OccupancyReader(redis).read("tiny", ["c", "a", "nobody"])
    assert found.waiting == {"priority": 0, "default": 1, "flex": 1, "batch": 0}
    assert found.claimed == {"b": Holder("w1", 1, "priority"), "a": Holder("w1", 1, "default")}
    assert found.queued == {"c"}
    assert (found.running("priority"), found.running("default"), found.running("flex")) == (1, 1, 0)


def read(queued: tuple[str, ...] = (), **claims: tuple[str, int]) -> Occupancy:
    return Occupancy(
        claimed={name: Holder(worker, attempt, "default") for name, (worker, attempt) in claims.items()},
        queued=frozenset(queued),
    )


def moved(log: MoveLog) -> list[tuple[str, str, str | None, str]]:
    return [(move.request, move.source, move.target, move.reason) for move in log.recent(0.0)]


def test_moves_from_a_dead_worker() -> None:
    log = MoveLog()
    log.observe("m", read(one=("a", 1), two=("a", 1), ended=("a", 1), other=("b", 1)), {"a", "b"}, 0.0)
    assert sorted(log.tracked_jobs("m")) == ["ended", "one", "other", "two"]
    log.observe("m", read(("two",), one=("b", 2), other=("b", 1)), {"b"}, 0.5)
    log.observe("m", read(("two",), one=("b", 2), other=("b", 1)), {"b"}, 1.0)
    log.observe("m", read(one=("b", 2), two=("b", 2)), {"b"}, 1.5)
    assert moved(log) == [
        ("one", "a", "b", "worker_lost"),
        ("two", "a", None, "worker_lost"),
        ("two", "a", "b", "worker_lost"),
    ]


def test_a_live_worker_releases_a_job_and_goes_on_with_it() -> None:
    log = MoveLog()
    log.observe("m", read(one=("a", 1)), {"a"}, 0.0)
    log.observe("m", read(one=("a", 2)), {"a"}, 0.5)
    assert moved(log) == [("one", "a", "a", "released")]
    assert log.recent(1000.0) == []


def test_percentiles_over_replicas_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = FirstTokenTimes(), FirstTokenTimes()
    for _ in range(90):
        first.record("m", 0.1)
    for _ in range(10):
        second.record("m", 2.0)
    both = combined([first.histograms()["m"], second.histograms()["m"]])
    median, tail = percentile(both, 0.5), percentile(both, 0.95)
    assert median is not None
    assert tail is not None
    assert math.isclose(median, 0.1, rel_tol=0.05)
    assert math.isclose(tail, 2.0, rel_tol=0.05)
    assert percentile({}, 0.5) is None
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + WINDOW + 1)
    assert first.histograms() == {}
    first.record("m", 1e9)
    first.record("m", 0.0)
    assert sum(first.histograms()["m"].values()) == 2


class Counting(ArqRedis):
    """Counts the scripts that read occupancies."""

    reads = 0

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        self.reads += args[0] == "EVALSHA" and args[2] == len(queue_keys("tiny"))
        return await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]


async def test_all_watchers_share_one_reading_and_nobody_costs_nothing(redis: ArqRedis, queue: JobQueue) -> None:
    counting = Counting(pool_or_conn=redis.connection_pool)
    await announce_worker(redis, WORKER, lease=60)
    await announce_replica(
        redis,
        ReplicaInfo(id="r", host="h", pid=1, address="", started=0.0, first_token_times={"tiny": {71: 1}}),
        lease=60,
    )
    await enqueue(queue, "a", "b")
    await queue.claim("w1", used=0, slots=1)
    directory = Directory(counting)
    await directory.refresh()
    watch = FleetWatch(counting, directory, BatchStore(redis, limit=5), replica="r", lease=60)
    await OccupancyReader(redis).read("tiny")  # loads the script
    assert counting.reads == 0
    async with Watcher(watch) as first:
        async with Watcher(watch) as second:
            documents = [await anext(one.documents()) for one in (first, second)]
        assert documents[0] == documents[1] == await watch.snapshot()
        assert counting.reads == 1
    document = json.loads(documents[0])
    (model,) = document["models"]
    assert [(tier["tier"], tier["waiting"], tier["running"]) for tier in model["tiers"]] == [
        ("priority", 0, 0), ("default", 1, 1), ("flex", 0, 0), ("batch", 0, 0),
    ]  # fmt: skip
    assert model["time_to_first_token"]["requests"] == 1
    (worker,) = document["workers"]
    assert worker["running"] == [{"request": "a", "tier": "default", "attempt": 1}]
    assert (worker["status"], document["moves"], document["store"]) == ("serving", [], "up")
    assert not watch._polling


async def test_batches_are_shown_until_a_minute_after_their_end(redis: ArqRedis, wall_clock: WallClock) -> None:
    store = BatchStore(redis, limit=5)
    watch = FleetWatch(redis, Directory(redis), store, replica="r", lease=60)

    async def shown() -> list[tuple[str, int, int]]:
        batches = json.loads(await watch.snapshot())["batches"]
        return [(batch["status"], batch["completed"], batch["total"]) for batch in batches]

    assert await shown() == []
    now = int(time.time())
    batch = Batch(
        id=f"batch_{'0' * 32}", owner="o", endpoint="/v1/chat/completions", input_file="f", created=now,
        expires=now + 86_400, retention=86_400,
    )  # fmt: skip
    await store.create(batch)
    assert await shown() == [("validating", 0, 0)]
    (claim,) = await store.claim(1)
    running = msgspec.structs.replace(batch.at("in_progress", now), counts=Counts(total=3, completed=1))
    claim = await store.commit(claim, running, b"")
    assert await shown() == [("in_progress", 1, 3)]
    whole = msgspec.structs.replace(running.at("completed", now), counts=Counts(total=3, completed=3))
    await store.commit(claim, whole, b"", ended=True)
    assert await shown() == [("completed", 3, 3)]
    wall_clock.advance(61)
    assert await shown() == []
