"""capacity: what each call costs one store, and from that what large fleets would ask of it.

A store, and this process in the place of all workers and replicas: it makes the calls that they make, in their rhythm.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from api.keys import ApiKey, keyring
from api.keys.store import stored_records
from api.models.directory import REFRESH, Directory
from bench.report import save, table
from shared.protocol.events import Delta, Finished, encode_event
from shared.protocol.queue import Emitter, JobQueue, Lease
from shared.protocol.registry import ReplicaInfo, WorkerInfo, announce
from shared.protocol.request import ChatRequest, Job, Message, Sampling
from shared.redis import keys
from shared.redis.client import connect
from shared.runtime.settings import WorkerSettings
from tests.support.emitting import emit
from tests.support.fleet import free_port
from tests.support.store import Store

WORKERS = 1000
REPLICAS = 100
BATCH = 32
STEP = 0.05
"""Seconds of an engine's step in the model."""

TOKENS = 128
"""Tokens of an answer in the model."""

CALLS = 1500
SIDE_BY_SIDE = 16
"""Calls under way at once: a busy store takes several in one go."""

REPLAY = 8.0
"""Seconds for which an idle fleet of the largest size is played."""

FLEETS = ((32, 2), (100, 10), (1000, 10), (1000, 100))

_LEASE: float = WorkerSettings.model_fields["lease"].default
_POLL: float = WorkerSettings.model_fields["poll"].default
_BEATS = 3
"""Advertisements, renewals and looks for lapsed claims in the time of a lease."""

_MODEL = "sim"
_ONE_FRAME = f"step of {BATCH} jobs, 1 replica"
_MANY_FRAMES = f"step of {BATCH} jobs, {BATCH} replicas"
_DELTA, _END = encode_event(Delta(0, (1,), " word")), encode_event(Finished(1, "length"))
_LANES = 4
Call = Callable[[int], Awaitable[object]]


def run(folder: Path) -> dict[str, Any]:
    """Measure, print the tables, and return the result."""
    store = Store(folder / "store", free_port())
    store.start()
    try:
        costs, replay = asyncio.run(_measure(store))
    finally:
        store.kill()
    units = [{"call": name, **cost} for name, cost in costs.items()]
    fleets: list[dict[str, object]] = []
    for workers, replicas in FLEETS:
        parts = demand({name: cost["store µs"] for name, cost in costs.items()}, workers, replicas)
        fleets.append({"workers": workers, "replicas": replicas, **parts, "together": sum(parts.values())})
    print(table(f"capacity: what a call costs the store ({WORKERS} workers and {REPLICAS} replicas known)", units))
    print(table(f"capacity: an idle fleet of {WORKERS} workers and {REPLICAS} replicas, played", [replay]))
    print(table(f"capacity: cores of one store, computed: {BATCH} streams a worker, steps of {STEP * 1000:.0f} ms, "
                f"{TOKENS} tokens an answer", fleets))  # fmt: skip
    result = {"units": units, "replay": replay, "fleets": fleets}
    save("capacity", result)
    return result


def demand(costs: dict[str, float], workers: int, replicas: int) -> dict[str, float]:
    """Cores of the store that a busy fleet takes, by purpose, from the µs of store time of each call.

    Each of a step's jobs belongs to any replica alike, so a step has frames for about R(1 - (1 - 1/R)^B) of R replicas.
    """
    frames = replicas * (1 - (1 - 1 / replicas) ** BATCH)
    a_frame = (costs[_MANY_FRAMES] - costs[_ONE_FRAME]) / (BATCH - 1)
    a_step = costs[_ONE_FRAME] - a_frame
    requests = workers * BATCH / STEP / TOKENS
    registry = costs["replica: read the registry"] * (workers + replicas) / (WORKERS + REPLICAS)
    beats = costs["advertise"] + costs["look for lapsed claims"] + costs[f"renew {BATCH} claims"]
    a_worker = _BEATS / _LEASE * beats + costs["look at an empty queue"] / _POLL
    a_replica = (
        _BEATS / _LEASE * (costs["advertise"] + costs["look for lapsed claims"])
        + registry / REFRESH
        + costs["replica: read the keys"] / keyring.REFRESH
    )
    return {
        "workers' beats": workers * a_worker / 1e6,
        "replicas' looks": replicas * a_replica / 1e6,
        "requests": requests * sum(costs[f"{call} a request"] for call in ("queue", "claim", "end")) / 1e6,
        "journals": workers / STEP * a_step / 1e6,
        "frames": workers / STEP * frames * a_frame / 1e6,
    }


async def _measure(store: Store) -> tuple[dict[str, dict[str, float]], dict[str, object]]:
    redis = connect(store.url)
    queue = JobQueue(redis, _MODEL)
    busy = [_Busy(f"bench-{number}") for number in range(SIDE_BY_SIDE)]
    watch = store.client()
    for number in range(WORKERS):
        await announce(redis, _worker(number), lease=600)
        await queue.claim(f"worker-{number}", used=0, slots=BATCH)
    for number in range(REPLICAS):
        await announce(redis, _replica(number), lease=600)

    async def advertise(turn: int) -> None:
        await announce(redis, _worker(turn % WORKERS), lease=600)

    async def reap(_: int) -> None:
        await queue.reap()

    async def look(turn: int) -> None:
        await queue.claim(f"worker-{turn % WORKERS}", used=0, slots=BATCH)

    async def refresh(_: int) -> None:
        # Not Directory.refresh by one and the same: that one looks once at a time.
        await Directory(redis).refresh()

    async def read_keys(_: int) -> None:
        await stored_records(redis, ApiKey)

    async def enqueue(turn: int) -> None:
        await queue.enqueue([_job(f"request-{turn}")], limit=1_000_000)

    async def claim(turn: int) -> None:
        worker = busy[turn % SIDE_BY_SIDE]
        claims, _ = await queue.claim(worker.id, used=BATCH - 1, slots=BATCH)
        worker.leases += [Lease(one.job, one.attempt, "replica-0") for one in claims]

    async def end(_: int) -> None:
        worker = max(busy, key=lambda worker: len(worker.leases))
        busy.remove(worker)
        lease = worker.leases.pop()
        lease.usage = "1 20 0 128 0 6400 0 0"
        await emit(redis, worker.emitter, {lease: [_DELTA, _END]}, ended={lease}, load=0.5)
        busy.append(worker)

    async def step(_: int) -> None:
        worker = busy.pop(0)
        await emit(redis, worker.emitter, {lease: [_DELTA] for lease in worker.leases})
        busy.append(worker)

    async def renew(turn: int) -> None:
        worker = busy[turn % SIDE_BY_SIDE]
        await queue.renew(worker.id, [(lease.job, lease.attempt) for lease in worker.leases])

    async with AsyncExitStack() as listening:
        # A queued request wakes a worker, and one without a subscription would be taken for dead.
        workers = [keys.worker_channel(f"worker-{number}") for number in range(WORKERS)]
        await listening.enter_async_context(_subscription(store.port, *workers))
        costs = {
            "advertise": await _cost(watch, advertise),
            "look for lapsed claims": await _cost(watch, reap),
            "look at an empty queue": await _cost(watch, look),
            "replica: read the registry": await _cost(watch, refresh, calls=100),
            "replica: read the keys": await _cost(watch, read_keys),
            "queue a request": await _cost(watch, enqueue),
            "claim a request": await _cost(watch, claim),
            "end a request": await _cost(watch, end),
        }
        for number in range(BATCH):
            await listening.enter_async_context(_subscription(store.port, keys.replica_channel(f"replica-{number}")))
        for jobs, frames in ((8, 1), (BATCH, 1), (BATCH, BATCH)):
            for worker in busy:
                names = [f"stream-{jobs}-{frames}-{worker.id}-{at}" for at in range(jobs)]
                worker.leases = [await _running(queue, worker.id, name, at % frames) for at, name in enumerate(names)]
            costs[f"step of {jobs} jobs, {frames} replica{'s' * (frames > 1)}"] = await _cost(watch, step)
            if jobs == BATCH and frames == 1:
                costs[f"renew {BATCH} claims"] = await _cost(watch, renew)
    parts = [(costs[call], 1.0) for call in ("queue a request", "claim a request", "end a request")]
    parts.append((costs[_ONE_FRAME], TOKENS / BATCH))
    costs[f"request of {TOKENS} tokens"] = {
        name: sum(cost[name] * times for cost, times in parts) for name in parts[0][0]
    }
    rhythm = [
        (advertise, WORKERS + REPLICAS, _LEASE / _BEATS),
        (reap, WORKERS, _LEASE / _BEATS),
        (reap, REPLICAS, _LEASE / _BEATS),
        (look, WORKERS, _POLL),
        (refresh, REPLICAS, REFRESH),
        (read_keys, REPLICAS, keyring.REFRESH),
    ]
    replay = await _play(watch, rhythm)
    await redis.aclose(close_connection_pool=True)
    return costs, replay


@asynccontextmanager
async def _subscription(port: int, *channels: str) -> AsyncIterator[None]:
    """Subscribe to ``channels`` of the store on ``port``, as a replica or worker does, and discard the messages."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"SUBSCRIBE %s\r\n" % " ".join(channels).encode())
    await reader.readline()

    async def discard() -> None:
        while await reader.read(2**18):
            pass

    discarding = asyncio.create_task(discard())
    try:
        yield
    finally:
        discarding.cancel()
        writer.close()


class _Busy:
    """A worker with streams."""

    def __init__(self, worker: str) -> None:
        self.id, self.emitter = worker, Emitter(_MODEL, worker)
        self.leases: list[Lease] = []


def _store_counts(store: Any) -> dict[str, float]:
    """What the store has done since its start: CPU seconds, commands (those inside scripts too) and bytes."""
    info = store.info("all")
    return {
        "cpu": info["used_cpu_user"] + info["used_cpu_sys"],
        "commands": info["total_commands_processed"],
        "bytes": info["total_net_input_bytes"] + info["total_net_output_bytes"],
    }


async def _cost(watch: Any, call: Call, *, calls: int = CALLS) -> dict[str, float]:
    """What one call takes of the store, of many that are made side by side."""
    turns = iter(range(calls))

    async def some() -> None:
        for turn in turns:
            await call(turn)

    before = _store_counts(watch)
    await asyncio.gather(*(some() for _ in range(SIDE_BY_SIDE)))
    after = _store_counts(watch)
    return {
        "store µs": (after["cpu"] - before["cpu"]) / calls * 1e6,
        "commands": (after["commands"] - before["commands"]) / calls,
        "bytes": (after["bytes"] - before["bytes"]) / calls,
    }


async def _play(watch: Any, rhythm: Sequence[tuple[Call, int, float]]) -> dict[str, object]:
    """Make calls in their rhythm, each by so many processes every so many seconds."""
    made = 0

    async def keep_on(call: Call, per_second: float) -> None:
        nonlocal made
        began = time.perf_counter()
        for turn in range(int(REPLAY * per_second)):
            await asyncio.sleep(began + turn / per_second - time.perf_counter())
            await call(turn)
            made += 1

    before, began = _store_counts(watch), time.perf_counter()
    # Some lanes for each, so that a call need not wait for the one before.
    await asyncio.gather(
        *(keep_on(call, processes / every / _LANES) for call, processes, every in rhythm for _ in range(_LANES))
    )
    seconds, after = time.perf_counter() - began, _store_counts(watch)
    return {
        "calls/s": made / seconds,
        "wanted/s": sum(processes / every for _, processes, every in rhythm),
        "store, cores": (after["cpu"] - before["cpu"]) / seconds,
        "MB/s": (after["bytes"] - before["bytes"]) / seconds / 1e6,
    }


async def _running(queue: JobQueue, worker: str, job: str, replica: int) -> Lease:
    """Have a job claimed."""
    await queue.enqueue([_job(job)], limit=1_000_000)
    claims, _ = await queue.claim(worker, used=0, slots=1)
    return Lease(claims[0].job, claims[0].attempt, f"replica-{replica}")


def _job(job: str) -> Job:
    request = ChatRequest(
        model=_MODEL,
        messages=(Message(role="user", content="What is the capital of France, and what is it known for?"),),
        sampling=Sampling(max_tokens=TOKENS),
    )
    return Job(id=job, reply_to="replica-0", request=request)


def _worker(number: int) -> WorkerInfo:
    return WorkerInfo(
        id=f"worker-{number}",
        host=f"host-{number}.cluster.internal",
        pid=1000 + number,
        model=_MODEL,
        status="serving",
        engine="openvino",
        device="CPU",
        fingerprint="fp_0123456789",
        started=1.7e9,
        slots=BATCH,
        used=number % BATCH,
        context_length=8192,
        tokens_per_second=640.0,
        version="0.1.0",
    )


def _replica(number: int) -> ReplicaInfo:
    return ReplicaInfo(
        id=f"replica-{number}", host=f"api-{number}", pid=1000 + number, address="http://10.0.0.1:8000", started=1.7e9
    )
