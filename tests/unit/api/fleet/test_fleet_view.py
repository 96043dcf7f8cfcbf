"""The fleet view: occupancy of the queues, moves between workers, times to first token, and who reads the store."""

import json
import time
from typing import Any

import msgspec
import pytest
from arq.connections import ArqRedis

from api.batches.record import Batch, BatchCounts
from api.batches.store import BatchStore
from api.fleet.watch import FleetWatch, Watcher
from api.metrics.histogram import FINE_BUCKETS, WINDOW, RecentTimes, percentile
from api.models.directory import Directory
from shared.protocol.queue import JobQueue
from shared.protocol.queue.occupancy import Holder, OccupancyReader
from shared.protocol.queue.texts import queue_keys
from shared.protocol.registry import ReplicaInfo, announce
from shared.redis import keys
from shared.redis.store_check import StoreCheck
from tests.support.eventually import PATIENCE
from tests.support.jobs import WORKER, enqueue, job
from tests.support.redis_types import awaitable
from tests.support.wall_clock import WallClock


async def test_occupancy_tells_tiers_and_holders_apart(redis: ArqRedis, queue: JobQueue) -> None:
    for name, tier in (("a", "default"), ("b", "priority"), ("c", "flex"), ("d", None)):
        one = job(name)
        request = msgspec.structs.replace(one.request, tier=tier)
        await queue.enqueue([msgspec.structs.replace(one, request=request)], limit=100)
    await queue.claim("w1", used=0, slots=2)
    found = await OccupancyReader(redis).read("tiny")
    assert found.waiting == {"priority": 0, "default": 1, "flex": 1, "batch": 0}
    assert found.claimed == {"b": Holder("w1", 1, "priority"), "a": Holder("w1", 1, "default")}
    assert (found.running("priority"), found.running("default"), found.running("flex")) == (1, 1, 0)


async def test_moves_name_the_workers_and_the_cause(redis: ArqRedis, queue: JobQueue) -> None:
    async def moves() -> list[tuple[str, str, str | None, str]]:
        found = (await OccupancyReader(redis).read("tiny")).moves
        assert all(move.model == "tiny" and abs(move.time - time.time()) < PATIENCE for move in found)
        return [(move.request, move.source, move.target, move.reason) for move in found]

    await enqueue(queue, "a", "b")
    await queue.claim("w1", used=0, slots=2)
    await queue.release("w1", [("a", 1)])
    await redis.zadd(keys.inflight("tiny"), {"b": 1})
    await queue.reap()
    assert await moves() == [("b", "w1", None, "worker_lost"), ("a", "w1", None, "released")]
    await queue.claim("w2", used=0, slots=1)
    assert await moves() == [("a", "w1", "w2", "released"), ("b", "w1", None, "worker_lost")]
    assert await redis.ttl(keys.moves("tiny")) > 0


async def test_the_log_of_moves_is_bounded_and_skips_what_it_cannot_read(redis: ArqRedis, queue: JobQueue) -> None:
    await enqueue(queue, "a")
    await awaitable(redis.rpush(keys.moves("tiny"), *[b"of another version"] * 200))
    for attempt in (1, 2):
        await queue.claim("w1", used=0, slots=1)
        await queue.release("w1", [("a", attempt)])
    assert await awaitable(redis.llen(keys.moves("tiny"))) == 200
    assert len((await OccupancyReader(redis).read("tiny")).moves) > 1


def test_percentiles_over_replicas_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = RecentTimes(), RecentTimes()
    for _ in range(90):
        first.observe("m", 0.1)
    for _ in range(10):
        second.observe("m", 2.0)
    both = first.counts()["m"] | second.counts()["m"]
    median, tail = percentile(both, 0.5), percentile(both, 0.95)
    assert median == pytest.approx(0.1, rel=0.05)
    assert tail == pytest.approx(2.0, rel=0.05)
    assert percentile({}, 0.5) is None
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + WINDOW + 1)
    assert first.counts() == {}
    first.observe("m", 1e9)
    first.observe("m", 0.0)
    assert first.counts() == {"m": {0: 1, len(FINE_BUCKETS): 1}}


class Counting(ArqRedis):
    """Counts the scripts that read occupancies."""

    reads = 0

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        self.reads += args[0] == "EVALSHA" and args[2] == len(queue_keys("tiny")) + 1
        return await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]


async def test_all_watchers_share_one_reading_and_nobody_costs_nothing(redis: ArqRedis, queue: JobQueue) -> None:
    counting = Counting(pool_or_conn=redis.connection_pool)
    await announce(redis, WORKER, lease=60)
    await announce(
        redis,
        ReplicaInfo(
            id="r", host="h", pid=1, address="", started=0.0, first_token_times={"tiny": {71: 1}}, failures={"tiny": 2}
        ),
        lease=60,
    )
    await enqueue(queue, "a", "b")
    await queue.claim("w1", used=0, slots=1)
    directory = Directory(counting)
    await directory.refresh()
    watch = FleetWatch(counting, directory, BatchStore(redis, limit=5), StoreCheck(redis), replica="r", lease=60)
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
    assert (model["time_to_first_token"]["requests"], model["failures"]) == (1, 2)
    (worker,) = document["workers"]
    assert worker["running"] == [{"request": "a", "tier": "default", "attempt": 1}]
    assert (worker["status"], document["moves"], document["store"]) == ("serving", [], "up")
    assert not watch._polling


async def test_batches_are_shown_until_a_minute_after_their_end(redis: ArqRedis, wall_clock: WallClock) -> None:
    store = BatchStore(redis, limit=5)
    watch = FleetWatch(redis, Directory(redis), store, StoreCheck(redis), replica="r", lease=60)

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
    running = msgspec.structs.replace(batch.at("in_progress", now), counts=BatchCounts(total=3, completed=1))
    claim = await store.commit(claim, running, b"")
    assert await shown() == [("in_progress", 1, 3)]
    whole = msgspec.structs.replace(running.at("completed", now), counts=BatchCounts(total=3, completed=3))
    await store.commit(claim, whole, b"", ended=True)
    assert await shown() == [("completed", 3, 3)]
    wall_clock.advance(61)
    assert await shown() == []
