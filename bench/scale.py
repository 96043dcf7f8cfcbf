"""scale: throughput against the ideal as workers are added, until the machine's cores are the limit."""

import asyncio
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.load import Stream, chat
from bench.report import save, table
from shared.runtime.event_loop import run as run_loop
from tests.support.fleet import Fleet
from tests.support.processes import family
from worker.processes.child import cpu_seconds

SLOTS = 64
STEP = 0.1
WORKERS = (1, 2, 4, 8, 16, 32)
TWO_REPLICAS_FROM = 8
"""Workers from which a second replica is tried too."""

OPENED = 400
"""Streams opened in a second."""

SETTLING = 0.5
WATCHED = 4.0
"""Seconds for which CPU time is counted, once all streams are open and have settled."""


def run(folder: Path) -> dict[str, Any]:
    """Measure with a growing fleet, print the table, and return the result."""
    fleet = Fleet(folder)
    rows = []
    try:
        apis = [fleet.api("--max-queue", "100000") for _ in range(2)]
        ports = [int(api.arguments[api.arguments.index("--port") + 1]) for api in apis]
        running = 0
        for workers in WORKERS:
            fleet.add_workers(workers - running, "--engine", "simulated", "--model", "sim", "--max-batch", str(SLOTS),
                              "--sim-step", str(STEP), "--sim-tokens", "1000000")  # fmt: skip
            running = workers
            rows.append(run_loop(_measure(fleet, ports[:1], workers)))
            if workers >= TWO_REPLICAS_FROM:
                rows.append(run_loop(_measure(fleet, ports, workers)))
    finally:
        fleet.stop()
    print(table(f"scale: {SLOTS} streams a worker, steps of {STEP * 1000:.0f} ms, {os.cpu_count()} cores", rows))
    save("scale", {"rows": rows})
    return {"rows": rows}


async def _measure(fleet: Fleet, ports: list[int], workers: int) -> dict[str, object]:
    count = workers * SLOTS
    opening = count / OPENED
    tokens = int((opening + SETTLING + WATCHED) / STEP)

    async def one(number: int) -> Stream:
        await asyncio.sleep(number / OPENED)
        return await chat(ports[number % len(ports)], "sim", f"question {number}", tokens)

    tasks = [asyncio.create_task(one(number)) for number in range(count)]
    await asyncio.sleep(opening + SETTLING)
    before, began = _used(fleet), time.perf_counter()
    await asyncio.sleep(WATCHED - SETTLING)
    after, seconds = _used(fleet), time.perf_counter() - began
    streams = await asyncio.gather(*tasks)
    assert all(stream.complete for stream in streams)
    cores = {who: (after[who] - before[who]) / seconds for who in after}
    ideal = count / STEP
    rate = sum((stream.tokens - 1) / (stream.arrivals[-1] - stream.first) for stream in streams)
    return {
        "workers": workers,
        "replicas": len(ports),
        "streams": count,
        "ideal tokens/s": ideal,
        "tokens/s": rate,
        "of the ideal": rate / ideal,
        "cores busy": sum(cores.values()),
        **{f"{who}, cores": share for who, share in cores.items()},
    }


def _used(fleet: Fleet) -> dict[str, float]:
    """CPU seconds used so far, by who used them."""
    assert fleet.store.pid is not None
    apis = [process.popen.pid for process in fleet.processes if process.arguments[0] == "api"]
    workers = [process.popen.pid for process in fleet.processes if process.arguments[0] == "worker"]
    return {
        "replicas": _sum(apis),
        "workers": _sum(pid for worker in workers for pid in family(worker)),
        "store": cpu_seconds(fleet.store.pid),
        "client": cpu_seconds(os.getpid()),
    }


def _sum(pids: Iterable[int]) -> float:
    return sum(map(cpu_seconds, pids))
