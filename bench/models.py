"""models: four models on a host with room for two of them, under a Poisson load whose mix shifts.

A node is compared with workers that are always there, one for each model, which takes twice the memory, and with
swaps in the same memory without a queue: a request for a model that is not loaded has the one unloaded at once that was
least recently used, as soon as the requests of that one are done. Meanwhile all others wait in order of arrival, as in
llama-swap's process groups, or only those whose own model is not loaded.
"""

import asyncio
import itertools
import json
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from bench.load import Stream, chat
from bench.report import save, table
from cli.bench.report import percentile
from shared.runtime.event_loop import run as run_loop
from tests.support.eventually import eventually
from tests.support.fleet import Fleet, Process, execute, fleet
from tests.support.paths import MODELS

ROOM = 2
"""Models that the host has memory for."""

MAX_WAIT = 60
"""Seconds for which a request waits at most."""

_DRAIN = 5.0
_BIN = 0.5
"""Seconds of which a model is useful for all if a token of it comes in them."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """A Poisson load. The shares of the models are ``mix``, and move on by one model every ``phase`` seconds."""

    seconds: float = 180.0
    rate: float = 1.5
    """Requests per second, of all models together."""
    phase: float = 30.0
    mix: tuple[float, ...] = (0.55, 0.25, 0.15, 0.05)
    tokens: dict[str, int]
    """Length of the answers of each model."""
    seed: int = 34

    def arrivals(self) -> Iterator[tuple[float, str]]:
        """Return the seconds at which requests come, and their models."""
        dice = random.Random(self.seed)  # noqa: S311
        names = list(self.tokens)
        at = 0.0
        while (at := at + dice.expovariate(self.rate)) < self.seconds:
            turn = int(at / self.phase) % len(names)
            yield at, dice.choices(names[turn:] + names[:turn], self.mix)[0]


@dataclass(kw_only=True)
class Served:
    """What became of a load."""

    requests: int = 0
    waits: list[float] = field(default_factory=list)
    """Seconds to the first token of each request that was completed."""
    useful: set[tuple[str, int]] = field(default_factory=set)
    """Models, and the bins of time in which tokens of them came."""

    def add(self, model: str, arrived: float, began: float, stream: Stream | None) -> None:
        """Count a request to ``model`` that arrived at a time, in a load that ``began`` at another."""
        self.requests += 1
        if stream is None or not stream.complete or stream.status != 200:
            return
        self.waits.append(stream.first - arrived)
        self.useful |= {(model, int((at - began) / _BIN)) for at in stream.arrivals}


class Host(Protocol):
    """A host that serves the models."""

    slots: int
    """Models that it has memory for."""

    def using(self, model: str) -> AbstractAsyncContextManager[object]:
        """Return a block in which a request may be sent to ``model``."""

    def loads(self) -> int:
        """Return how often it has loaded a model."""


class Pinned:
    """A worker for each model."""

    def __init__(self, fleet: Fleet, sources: dict[str, str], options: tuple[str, ...]) -> None:
        for name, source in sources.items():
            fleet.start("worker", "--model", f"{name}={source}", *options)
        self.slots = len(sources)
        fleet.until(lambda: len(fleet.workers("serving")) == self.slots, "the workers to serve")

    def using(self, model: str) -> AbstractAsyncContextManager[object]:
        """Let it be sent at once."""
        return nullcontext()

    def loads(self) -> int:
        """Return 0: all were loaded before."""
        return 0


class Queued:
    """A node: requests wait in the queue of their model."""

    slots = ROOM

    def __init__(self, fleet: Fleet, sources: dict[str, str], options: tuple[str, ...]) -> None:
        self._fleet = fleet
        file = fleet.folder / "models.toml"
        entries = (f'[models.{name}]\nsource = "{source}"\nmemory = "1GB"\n' for name, source in sources.items())
        file.write_text("".join(entries))
        fleet.start("node", "--models", str(file), "--memory", f"{ROOM}GB", *options)
        fleet.until(self._nodes, "the node to register")

    def using(self, model: str) -> AbstractAsyncContextManager[object]:
        """Let it be sent at once."""
        return nullcontext()

    def loads(self) -> int:
        """Return what the node has counted."""
        return sum(model.get("loads", 0) for node in self._nodes() for model in node["models"])

    def _nodes(self) -> list[dict[str, Any]]:
        nodes: list[dict[str, Any]] = json.loads(self._fleet.request("GET", "/v1/fleet")[2])["nodes"]
        return nodes


@dataclass(eq=False)
class _Worker:
    process: Process | None = None
    """None until it has got its memory."""
    started: asyncio.Event = field(default_factory=asyncio.Event)
    ready: "asyncio.Task[None] | None" = None
    requests: int = 0
    """Requests that it has, or that wait for it."""
    used: float = 0.0


class LeastRecentlyUsed:
    """Swaps at once, without a queue. Requests that wait for a load count among those of its model."""

    slots = ROOM

    def __init__(self, in_order: bool, fleet: Fleet, sources: dict[str, str], options: tuple[str, ...]) -> None:
        """``in_order``: whether a request that waits for a swap to begin holds up those behind it."""
        self._in_order = in_order
        self._order = asyncio.Lock()
        self._fleet = fleet
        self._sources = sources
        self._options = options
        self._workers: dict[str, _Worker] = {}
        self._swapping = asyncio.Lock()
        self._loads = 0

    @asynccontextmanager
    async def using(self, model: str) -> AsyncIterator[None]:
        """Load ``model`` if it is not loaded."""
        async with self._order if self._in_order else nullcontext():
            worker = self._workers.setdefault(model, _Worker())
            worker.requests, worker.used = worker.requests + 1, time.monotonic()
            worker.ready = worker.ready or asyncio.create_task(self._load(model, worker))
            try:
                await worker.started.wait()
            except asyncio.CancelledError:
                worker.requests -= 1
                raise
        try:
            await asyncio.shield(worker.ready)
            yield
        finally:
            worker.requests -= 1

    def loads(self) -> int:
        """Return how often a worker was started."""
        return self._loads

    async def _load(self, model: str, worker: _Worker) -> None:
        async with self._swapping:
            loaded = [name for name, other in self._workers.items() if other.process is not None]
            if len(loaded) == ROOM:
                await self._unload(self._workers.pop(min(loaded, key=lambda name: self._workers[name].used)))
            self._loads += 1
            process = self._fleet.start("worker", "--model", f"{model}={self._sources[model]}", *self._options)
            worker.process = process
            worker.started.set()
        pid = process.popen.pid
        serving = self._fleet.workers
        await eventually(lambda: any(one["pid"] == pid for one in serving("serving")), "the worker to serve")

    async def _unload(self, worker: _Worker) -> None:
        assert worker.process is not None
        assert worker.ready is not None
        await worker.ready
        await eventually(lambda: not worker.requests)
        await asyncio.to_thread(worker.process.stop)


WAYS: dict[str, Callable[[Fleet, dict[str, str], tuple[str, ...]], Host]] = {
    "pinned, twice the memory": Pinned,
    "swapped at once, in order": partial(LeastRecentlyUsed, True),
    "swapped at once": partial(LeastRecentlyUsed, False),
    "node": Queued,
}


def run(folder: Path, *, runs: int = 1, model: str = "default") -> dict[str, Any]:
    """Measure, print the table, and return the result. ``model`` is the source of the largest model; with
    ``simulated``, all are simulated."""
    if model == "simulated":
        sources = dict.fromkeys(("a", "b", "c", "d"), "[[tokens 100000]]")
        load = Load(seconds=80, rate=3, tokens=dict.fromkeys(sources, 50))
        options = "--engine simulated --sim-load 3 --sim-step 0.05 --max-batch 8"
    else:
        names = ("qwen2-byte-level-bpe", "llama-byte-fallback-bpe", "phi3-byte-fallback-bpe")
        sources = {"default": model} | {name.split("-")[0]: str(MODELS / name) for name in names}
        load = Load(tokens=dict.fromkeys(sources, 200) | {"default": 24})
        options = "--max-batch 8 --cache-size 1"
    rows = []
    for turn, way in itertools.product(range(runs), WAYS):
        rows.append(measure(folder / f"{turn} {way}", way, sources, load, tuple(options.split())))
    rate = f"{load.rate} requests/s for {load.seconds:.0f} s"
    print(table(f"models: {len(sources)} models, {rate}, maximum wait {MAX_WAIT} s", rows))
    save("models", {"rows": rows})
    return {"rows": rows}


def measure(folder: Path, way: str, sources: dict[str, str], load: Load, options: tuple[str, ...]) -> dict[str, object]:
    """Play ``load`` to a host of one of :data:`WAYS`, with ``options`` of its workers. Return a row of the table."""
    folder.mkdir(parents=True)
    with fleet(folder, launch=execute) as service:
        service.api("--queue-timeout", str(MAX_WAIT), "--max-queue", "10000")
        return run_loop(_play(service, way, sources, load, options))


async def _play(
    fleet: Fleet, way: str, sources: dict[str, str], load: Load, options: tuple[str, ...]
) -> dict[str, object]:
    host = WAYS[way](fleet, sources, options)
    served = Served()
    began = time.perf_counter()

    async def send(number: int, model: str, arrived: float) -> None:
        stream = None
        try:
            async with asyncio.timeout(MAX_WAIT) as patience, host.using(model):
                patience.reschedule(None)
                stream = await chat(fleet.port, model, f"Request {number}", load.tokens[model], ignore_eos=True)
        except TimeoutError:
            pass
        served.add(model, arrived, began, stream)

    async with asyncio.TaskGroup() as sending:
        for number, (at, model) in enumerate(load.arrivals()):
            await asyncio.sleep(began + at - time.perf_counter())
            sending.create_task(send(number, model, time.perf_counter()))
    seconds = time.perf_counter() - began
    return {
        "models are": way,
        "requests": served.requests,
        "completed": len(served.waits),
        "lost": served.requests - len(served.waits),
        "past the maximum wait": sum(wait > MAX_WAIT for wait in served.waits),
        "wait p50 (s)": percentile(served.waits, 0.5),
        "p95": percentile(served.waits, 0.95),
        "loads per minute": host.loads() / seconds * 60,
        "useful time": len(served.useful) * _BIN / seconds / host.slots,
        "seconds": seconds,
    }
