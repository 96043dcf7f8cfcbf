"""plumbing: what a token costs the API, the worker's supervisor and the store, with an engine that only waits.

The API's share is compared with that of a plain Quart route that writes ready-made chunks, in turns: the microseconds
of both change with the hour, by what else the machine's caches are used for.
"""

import asyncio
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from bench.load import Stream, chat
from bench.report import ratios, save, table
from bench.usage import store_counts
from shared.runtime.event_loop import run as run_loop
from shared.runtime.processes import module_command
from tests.support.fleet import Fleet
from worker.processes.child import cpu_seconds

SLOTS = 64
STEP = 0.02
TOKENS = 400


def run(folder: Path, *, workers: tuple[int, ...] = (1, 2, 4), runs: int = 3) -> dict[str, Any]:
    """Measure with growing fleets, print the table, and return the result."""
    rows = []
    with _plain_route() as plain:
        for count in workers:
            fleet = Fleet(folder / str(count))
            try:
                for _ in range(count):
                    fleet.worker("--engine", "simulated", "--model", "sim", "--max-batch", str(SLOTS),
                                 "--sim-step", str(STEP), "--sim-tokens", str(TOKENS))  # fmt: skip
                fleet.api()
                rows.append(_measure(fleet, count, runs, plain))
            finally:
                fleet.stop()
    print(table(f"plumbing: {SLOTS} streams a worker, steps of {STEP * 1000:.0f} ms", rows))
    save("plumbing", {"rows": rows})
    return {"rows": rows}


@contextmanager
def _plain_route() -> Iterator[tuple[int, int]]:
    """Run :mod:`bench.plain_stream` for a block, which is given its process id and port."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        number = listener.fileno()
        process = subprocess.Popen(module_command("bench.plain_stream", str(number), str(STEP)), pass_fds=[number])
        try:
            yield process.pid, listener.getsockname()[1]
        finally:
            process.kill()
            process.wait()


def _measure(fleet: Fleet, workers: int, runs: int, plain: tuple[int, int]) -> dict[str, object]:
    store = fleet.store.client()
    api = fleet.processes[-1].popen.pid
    supervisors = [process.popen.pid for process in fleet.processes[:-1]]
    plain_pid, plain_port = plain
    for port in (plain_port, fleet.port):
        run_loop(_load(port, workers))
    plain_costs, api_costs, supervisor_costs, rates = [], [], [], []
    counts = dict.fromkeys(store_counts(store), 0.0)
    for _ in range(runs):
        (plain_cost,), _ = _costs([[plain_pid]], plain_port, workers)
        before = store_counts(store)
        (api_cost, supervisor_cost), rate = _costs([[api], supervisors], fleet.port, workers)
        after = store_counts(store)
        counts = {name: count + after[name] - before[name] for name, count in counts.items()}
        plain_costs.append(plain_cost)
        api_costs.append(api_cost)
        supervisor_costs.append(supervisor_cost)
        rates.append(rate)
    steps = runs * workers * TOKENS
    tokens = steps * SLOTS
    return {
        "workers": workers,
        "streams": workers * SLOTS,
        "tokens/s": median(rates),
        "API µs/token": median(api_costs),
        "a plain route's": median(plain_costs),
        "API to it": ratios(api_costs, plain_costs),
        "supervisor µs/token": median(supervisor_costs),
        "store µs/token": counts["cpu"] / tokens * 1e6,
        "publishes/step": counts["publish"] / steps,
        "commands/token": counts["commands"] / tokens,
        "bytes/token": counts["bytes"] / tokens,
    }


def _costs(groups: Sequence[Sequence[int]], port: int, workers: int) -> tuple[list[float], float]:
    """Load what listens on ``port``; return the CPU microseconds a token of each group of processes, and tokens/s."""
    before = [sum(map(cpu_seconds, group)) for group in groups]
    streams = run_loop(_load(port, workers))
    tokens = sum(stream.tokens for stream in streams)
    spent = [sum(map(cpu_seconds, group)) - cpu for group, cpu in zip(groups, before, strict=True)]
    seconds = max(stream.ended for stream in streams) - min(stream.began for stream in streams)
    return [cpu / tokens * 1e6 for cpu in spent], tokens / seconds


async def _load(port: int, workers: int) -> list[Stream]:
    streams = await asyncio.gather(
        *(chat(port, "sim", f"question {number}", TOKENS) for number in range(workers * SLOTS))
    )
    assert all(stream.complete for stream in streams)
    return list(streams)
