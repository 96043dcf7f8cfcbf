"""streams: thousands of open streams on one API replica, and new connections by the thousand.

Tokens come once a second. Each worker serves a model of its own, so that the client knows which streams share a step.
"""

import asyncio
import gc
import resource
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

from bench.load import Stream, chat, probe
from bench.report import save, table
from bench.usage import resident
from cli.bench.report import percentile
from shared.runtime.event_loop import run as run_loop
from tests.support.fleet import Fleet
from worker.processes.child import cpu_seconds

STREAMS = 5000
WORKERS = 16
STEP = 1.0
TOKENS = 45
OPENING = 20.0
"""Seconds over which the streams are opened."""

WATCHED = 15.0
"""Seconds for which all are open and watched."""

CONNECTIONS = 1000
"""New connections in a second."""

CONNECTING = 5.0
"""Seconds for which new connections come."""


def run(folder: Path) -> dict[str, Any]:
    """Measure, print the tables, and return the result."""
    _allow_files(2 * STREAMS)
    fleet = Fleet(folder)
    try:
        slots = -(-STREAMS // WORKERS)
        for number in range(WORKERS):
            fleet.start("worker", "--engine", "simulated", "--model", f"sim{number}", "--max-batch", str(slots),
                        "--sim-step", str(STEP), "--sim-tokens", str(TOKENS))  # fmt: skip
        fleet.start("worker", "--engine", "simulated", "--model", "short", "--sim-step", "0", "--max-batch", "256")
        fleet.until(lambda: len(fleet.workers("serving")) > WORKERS, "the workers to serve")
        api = fleet.api("--max-queue", str(STREAMS)).popen.pid
        run_loop(_warm_up(fleet.port))
        # The client's own collector would stop it for long enough to be seen.
        gc.disable()
        streams = run_loop(_open_streams(fleet.port, api))
        gc.enable()

        async def one_chat() -> Stream:
            return await chat(fleet.port, "short", "hello", 1)

        async def one_probe() -> Stream:
            return await probe(fleet.port, "/live")

        connections = [
            {"each sends": "GET /live", **run_loop(_connect(one_probe, api))},
            {"each sends": "a chat of one token", **run_loop(_connect(one_chat, api))},
        ]
    finally:
        fleet.stop()
    print(table(f"streams: {STREAMS} open streams, a token every {STEP:.0f} s, one API replica", [streams]))
    print(table(f"streams: {CONNECTIONS} new connections a second for {CONNECTING:.0f} s", connections))
    save("streams", {"streams": streams, "connections": connections})
    return {"streams": streams, "connections": connections}


async def _warm_up(port: int) -> None:
    """Have the replica make what it makes once, so that it does not count for the streams."""
    for _ in range(3):
        await asyncio.gather(*(chat(port, "short", "hello", 2) for _ in range(100)))


async def _open_streams(port: int, api: int) -> dict[str, object]:
    memory, used = resident(api), cpu_seconds(api)

    async def one(number: int) -> Stream:
        await asyncio.sleep(number * OPENING / STREAMS)
        return await chat(port, f"sim{number % WORKERS}", f"question {number}", TOKENS)

    tasks = [asyncio.create_task(one(number)) for number in range(STREAMS)]
    await asyncio.sleep(OPENING + 3 * STEP)
    opening = cpu_seconds(api) - used
    began, used = time.perf_counter(), cpu_seconds(api)
    await asyncio.sleep(WATCHED)
    ended, used = time.perf_counter(), cpu_seconds(api) - used
    memory = resident(api) - memory
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    by_worker: list[list[list[float]]] = [[] for _ in range(WORKERS)]
    streaming = whole = 0
    for number, answer in enumerate(answers):
        if isinstance(answer, Stream):
            whole += answer.complete and answer.tokens == TOKENS
            if 0 < answer.first < began and ended < answer.ended:
                streaming += 1
                by_worker[number % WORKERS].append([at for at in answer.arrivals if began < at < ended])
    late = [seconds * 1000 for streams in by_worker for seconds in lateness(streams)]
    return {
        "open at once": streaming,
        "errors": STREAMS - whole,
        "kB/stream": memory / STREAMS / 1000,
        "late p50 ms": statistics.median(late),
        "late p99 ms": percentile(late, 0.99),
        "latest ms": max(late),
        "API, share of a core": used / (ended - began),
        "API ms to open one": opening / STREAMS * 1000,
    }


async def _connect(exchange: Callable[[], Awaitable[Stream]], api: int) -> dict[str, object]:
    """Begin ``exchange`` at an even pace, whatever has become of the earlier ones."""
    used, began = cpu_seconds(api), time.perf_counter()

    async def one(number: int) -> Stream:
        await asyncio.sleep(began + number / CONNECTIONS - time.perf_counter())
        return await exchange()

    count = int(CONNECTIONS * CONNECTING)
    answers = await asyncio.gather(*map(one, range(count)), return_exceptions=True)
    answered = [one for one in answers if isinstance(one, Stream) and one.status == 200]
    taken = [(one.ended - one.began) * 1000 for one in answered]
    return {
        "answered": len(answered),
        "errors": count - len(answered),
        "answered/s": len(answered) / (max(one.ended for one in answered) - began),
        "p50 ms": percentile(taken, 0.5),
        "p99 ms": percentile(taken, 0.99),
        "API ms each": (cpu_seconds(api) - used) / count * 1000,
    }


def lateness(streams: Sequence[Sequence[float]]) -> list[float]:
    """How many seconds late each arrival is, for streams that share an engine's steps.

    Steps take equally long, so they lie on a line, and no token comes before its step: what is due when is the line
    below all arrivals that is nearest to them. What delays every single token of a worker alike is not seen.
    """
    streams = [arrivals for arrivals in streams if len(arrivals) > 1]
    if not streams:
        return []
    period = statistics.median(later - at for arrivals in streams for at, later in pairwise(arrivals))
    points = []
    for arrivals in streams:
        phase = statistics.median(at - step * period for step, at in enumerate(arrivals))
        shift = round((phase - streams[0][0]) / period)
        points += [(step + shift, at) for step, at in enumerate(arrivals)]
    slope, start = line_below(points)
    return [at - start - slope * step for step, at in points]


def line_below(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """The slope and the value at 0 of the line that no point lies below and that is nearest to all on average."""
    lowest: dict[int, float] = {}
    for x, y in points:
        lowest[x] = min(y, lowest.get(x, y))
    if len(lowest) == 1:
        return 0.0, min(lowest.values())
    middle = statistics.mean(x for x, _ in points)
    lines = []
    for (x, y), (other_x, other_y) in combinations(lowest.items(), 2):
        slope = (other_y - y) / (other_x - x)
        start = y - slope * x
        if all(low - start - slope * at > -1e-9 for at, low in lowest.items()):
            lines.append((start + slope * middle, slope, start))
    _, slope, start = max(lines)
    return slope, start


def _allow_files(count: int) -> None:
    """Have the fleet and the client open so many files, as far as the system lets them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        count = min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
