"""plumbing: what a token costs the API, the worker's supervisor and the store, with an engine that only waits."""

import asyncio
import time
from pathlib import Path
from typing import Any

from bench.fleet import Fleet
from bench.load import Stream, chat
from bench.report import save, table
from bench.usage import store_counts
from shared.loops import run as run_loop
from worker.own_time import cpu_seconds

SLOTS = 64
STEP = 0.02
TOKENS = 400


def run(folder: Path, *, workers: tuple[int, ...] = (1, 2, 4), runs: int = 3) -> dict[str, Any]:
    """Measure with growing fleets, print the table, and return the result."""
    rows = []
    for count in workers:
        fleet = Fleet(folder / str(count))
        try:
            for _ in range(count):
                fleet.worker("--engine", "simulated", "--model", "sim", "--max-batch", str(SLOTS),
                             "--sim-step", str(STEP), "--sim-tokens", str(TOKENS))  # fmt: skip
            fleet.api()
            run_loop(_load(fleet, count))
            rows.append(_measure(fleet, count, runs))
        finally:
            fleet.stop()
    print(table(f"plumbing: {SLOTS} streams a worker, steps of {STEP * 1000:.0f} ms", rows))
    save("plumbing", {"rows": rows})
    return {"rows": rows}


def _measure(fleet: Fleet, workers: int, runs: int) -> dict[str, object]:
    store = fleet.store.client()
    api = fleet.processes[-1].popen.pid
    supervisors = [process.popen.pid for process in fleet.processes[:-1]]
    before, started = store_counts(store), time.perf_counter()
    api_cpu, supervisor_cpu = cpu_seconds(api), sum(map(cpu_seconds, supervisors))
    streams: list[Stream] = []
    for _ in range(runs):
        streams += run_loop(_load(fleet, workers))
    seconds = time.perf_counter() - started
    after = store_counts(store)
    tokens = sum(stream.tokens for stream in streams)
    steps = runs * workers * TOKENS
    return {
        "workers": workers,
        "streams": workers * SLOTS,
        "tokens/s": tokens / seconds,
        "API µs/token": (cpu_seconds(api) - api_cpu) / tokens * 1e6,
        "supervisor µs/token": (sum(map(cpu_seconds, supervisors)) - supervisor_cpu) / tokens * 1e6,
        "store µs/token": (after["cpu"] - before["cpu"]) / tokens * 1e6,
        "publishes/step": (after["publish"] - before["publish"]) / steps,
        "commands/token": (after["commands"] - before["commands"]) / tokens,
        "bytes/token": (after["bytes"] - before["bytes"]) / tokens,
    }


async def _load(fleet: Fleet, workers: int) -> list[Stream]:
    streams = await asyncio.gather(
        *(chat(fleet.port, "sim", f"question {number}", TOKENS) for number in range(workers * SLOTS))
    )
    assert all(stream.complete for stream in streams)
    return list(streams)
