"""dispatch: how long a job takes to a worker and to its first step, what idle workers cost, and who gets the load."""

import asyncio
import random
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from redis.asyncio.client import PubSub

from bench.listener import deaf
from bench.report import save, table
from bench.usage import store_counts
from cli.bench.report import percentile
from shared.protocol.events import TERMINAL, Started, decode_frame
from shared.protocol.queue import JobQueue
from shared.protocol.request import ChatRequest, Job, Message, Sampling, Tier
from shared.redis import keys
from shared.redis.client import connect
from tests.support.fleet import Fleet
from tests.support.store import Store
from worker.processes.child import cpu_seconds

WORKERS = (1, 8, 32)
WAITING = (0, 100, 10_000)
JOBS = 300
JOBS_AMONG_OTHERS = 100
"""Fewer where others wait, because each then takes two steps of those that hold the slots."""

LONG_STEP = 0.05
"""Seconds of a step while the workers are full: jobs that only hold their slots should cost little."""

IDLE = 5.0
"""Seconds for which idle workers are watched."""

SPREAD_WORKERS = 8
SPREAD_SLOTS = 8
SPREAD_STEP = 0.02
SPREAD_TOKENS = 12
SPREAD_SECONDS = 12.0
LOADS = (0.25, 0.75)

_SIMULATED = ("--engine", "simulated", "--model", "sim")
_STATES = f"__keyspace@0__:{keys.state('')}"
"""Keyspace notification channels of the jobs' state keys; the first change is the claim."""

_ENDLESS = 1_000_000
"""Tokens of jobs that only hold their slots."""

_WAIT = 30.0
"""Seconds after which a job counts as lost."""


def run(folder: Path) -> dict[str, Any]:
    """Measure, print the tables, and return the result."""
    latencies, idle = [], []
    for step, waitings in ((0.0, WAITING[:1]), (LONG_STEP, WAITING[1:])):
        # A claim is seen by the store's own notice of it, which only this store sends.
        fleet = Fleet(folder / f"step-{step}", "--notify-keyspace-events", "Kh")
        try:
            running = 0
            for workers in WORKERS:
                fleet.add_workers(workers - running, *_SIMULATED, "--max-batch", "1", "--sim-step", str(step),
                                  "--sim-tokens", str(_ENDLESS), "--sim-context", str(_ENDLESS))  # fmt: skip
                running = workers
                if not step:
                    idle.append(_watch_idle(fleet, workers))
                latencies += [_latency(fleet, workers, waiting, step) for waiting in waitings]
        finally:
            fleet.stop()
    spread = _spread(folder / "spread")
    print(table("dispatch: jobs one after the other; where others wait, a slot is given up for each", latencies))
    print(table("dispatch: what idle workers ask of the store", idle))
    print(table(f"dispatch: {SPREAD_WORKERS} workers of {SPREAD_SLOTS} slots, Poisson arrivals", spread))
    result = {"latencies": latencies, "idle": idle, "spread": spread}
    save("dispatch", result)
    return result


def _watch_idle(fleet: Fleet, workers: int) -> dict[str, object]:
    store = fleet.redis()
    supervisors = [process.popen.pid for process in fleet.processes]
    before, used, began = store_counts(store), sum(map(cpu_seconds, supervisors)), time.perf_counter()
    time.sleep(IDLE)
    after, seconds = store_counts(store), time.perf_counter() - began
    return {
        "idle workers": workers,
        "commands/s": (after["commands"] - before["commands"]) / seconds,
        "kB/s": (after["bytes"] - before["bytes"]) / seconds / 1000,
        "store, % of a core": (after["cpu"] - before["cpu"]) / seconds * 100,
        "a supervisor, % of a core": (sum(map(cpu_seconds, supervisors)) - used) / seconds / workers * 100,
    }


class _Probe:
    """Puts jobs into the queue like an API replica, and subscribes to their events."""

    def __init__(self, queue: JobQueue, pubsub: PubSub, replica: str) -> None:
        self._queue = queue
        self._pubsub = pubsub
        self._replica = replica
        self.claimed: dict[str, float] = {}
        self.started: dict[str, tuple[float, str]] = {}
        """When the first event came, and from which worker."""
        self.ended: dict[str, float] = {}
        self._heard = asyncio.Event()

    async def put(self, *, tokens: int, tier: Tier, reply_to: str | None = None) -> str:
        """Queue a job; return its id."""
        request = ChatRequest(
            model="sim",
            messages=(Message(role="user", content="hello"),),
            sampling=Sampling(max_tokens=tokens),
            tier=tier,
        )
        job = Job(id=uuid.uuid4().hex, reply_to=reply_to or self._replica, request=request)
        await self._queue.enqueue([job], limit=1_000_000)
        return job.id

    async def seen(self, job: str, where: dict[str, Any]) -> None:
        """Wait until ``job`` is in ``where``."""
        async with asyncio.timeout(_WAIT):
            while job not in where:
                self._heard.clear()
                await self._heard.wait()

    async def claims(self, count: int) -> None:
        """Wait until so many jobs have been claimed."""
        async with asyncio.timeout(_WAIT):
            while len(self.claimed) < count:
                self._heard.clear()
                await self._heard.wait()

    async def listen(self) -> None:
        """Take messages until cancelled."""
        async for message in self._pubsub.listen():
            now = time.perf_counter()
            channel = message["channel"].decode()
            if channel.startswith(_STATES):
                self.claimed.setdefault(channel.removeprefix(_STATES), now)
            else:
                for entry in decode_frame(message["data"]):
                    if isinstance(entry.event, Started):
                        self.started[entry.job] = now, entry.event.worker
                    elif isinstance(entry.event, TERMINAL):
                        self.ended[entry.job] = now
            self._heard.set()


@asynccontextmanager
async def _probe(url: str) -> AsyncIterator[tuple[JobQueue, _Probe]]:
    redis = connect(url)
    queue = JobQueue(redis, "sim")
    replica = uuid.uuid4().hex
    async with redis.pubsub(ignore_subscribe_messages=True) as pubsub:
        await pubsub.subscribe(keys.replica_channel(replica))
        await pubsub.psubscribe(_STATES + "*")
        probe = _Probe(queue, pubsub, replica)
        listening = asyncio.create_task(probe.listen())
        try:
            yield queue, probe
        finally:
            listening.cancel()
            await asyncio.wait([listening])
    await redis.aclose(close_connection_pool=True)


async def _one_after_the_other(store: Store, workers: int, waiting: int) -> tuple[list[float], list[float]]:
    """Milliseconds from queueing a job to its claim, and from there to the end of its first step."""
    elsewhere = uuid.uuid4().hex
    async with _probe(store.url) as (queue, probe), deaf(store.port, keys.replica_channel(elsewhere)):
        others = [await probe.put(tokens=_ENDLESS, tier="flex", reply_to=elsewhere) for _ in range(waiting)]
        if waiting:
            others += [await probe.put(tokens=_ENDLESS, tier="flex", reply_to=elsewhere) for _ in range(workers)]
            await probe.claims(workers)
        given_up: set[str] = set()
        to_claim: list[float] = []
        to_step: list[float] = []
        for turn in range(1, 1 + (JOBS_AMONG_OTHERS if waiting else JOBS)):
            lease = [job for job in probe.claimed if job not in given_up and job not in probe.ended]
            began = time.perf_counter()
            job = await probe.put(tokens=1, tier="priority")
            if waiting:
                given_up.add(lease[0])
                await queue.cancel([lease[0]])
            await probe.seen(job, probe.ended)
            to_claim.append((probe.claimed[job] - began) * 1000)
            to_step.append((probe.started[job][0] - probe.claimed[job]) * 1000)
            if waiting:
                # The job's slot goes to one of the others; another comes in its place.
                await probe.claims(workers + 2 * turn)
                others.append(await probe.put(tokens=_ENDLESS, tier="flex", reply_to=elsewhere))
        await queue.cancel(others)
    return to_claim, to_step


def _latency(fleet: Fleet, workers: int, waiting: int, step: float) -> dict[str, object]:
    to_claim, to_step = asyncio.run(_one_after_the_other(fleet.store, workers, waiting))
    store = fleet.redis()
    fleet.until(lambda: not store.exists(keys.queue("sim"), keys.inflight("sim")), "the jobs to be gone")
    return {
        "workers": workers,
        "waiting": waiting,
        "to the claim: p50 ms": percentile(to_claim, 0.5),
        "p99 ms": percentile(to_claim, 0.99),
        "a step, ms": step * 1000,
        "claim to first step: p50 ms": percentile(to_step, 0.5),
        "p99 ms ": percentile(to_step, 0.99),
    }


def _spread(folder: Path) -> list[dict[str, object]]:
    fleet = Fleet(folder, "--notify-keyspace-events", "Kh")
    try:
        fleet.add_workers(SPREAD_WORKERS, *_SIMULATED, "--max-batch", str(SPREAD_SLOTS),
                          "--sim-step", str(SPREAD_STEP), "--sim-tokens", str(SPREAD_TOKENS))  # fmt: skip
        return [asyncio.run(_share(fleet.url, load)) for load in LOADS]
    finally:
        fleet.stop()


async def _share(url: str, load: float) -> dict[str, object]:
    capacity = SPREAD_WORKERS * SPREAD_SLOTS / (SPREAD_STEP * SPREAD_TOKENS)
    chance = random.Random(1)  # noqa: S311
    async with _probe(url) as (_, probe):
        began = at = time.perf_counter()
        jobs: dict[str, float] = {}
        while at - began < SPREAD_SECONDS:
            at += chance.expovariate(load * capacity)
            await asyncio.sleep(at - time.perf_counter())
            queued = time.perf_counter()
            jobs[await probe.put(tokens=SPREAD_TOKENS, tier="default")] = queued
        for job in jobs:
            await probe.seen(job, probe.ended)
    waits = [(probe.claimed[job] - queued) * 1000 for job, queued in jobs.items()]
    served: dict[str, int] = {}
    held: dict[str, float] = {}
    for job in jobs:
        worker = probe.started[job][1]
        served[worker] = served.get(worker, 0) + 1
        held[worker] = held.get(worker, 0.0) + probe.ended[job] - probe.claimed[job]
    return {
        "load": f"{load:.0%}",
        "jobs": len(jobs),
        "served, most / mean": max(served.values()) / (len(jobs) / SPREAD_WORKERS),
        "in flight, most / mean": max(held.values()) / (sum(held.values()) / SPREAD_WORKERS),
        "slots in use": sum(held.values()) / (at - began) / (SPREAD_WORKERS * SPREAD_SLOTS),
        "to the claim: p50 ms": percentile(waits, 0.5),
        "p99 ms": percentile(waits, 0.99),
    }
