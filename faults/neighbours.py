"""Fuzzer of fairness: whatever key A sends within its limits, key B gets its share, and the memory is freed.

B streams, sends a small new schema and a small new image, and reads ``/live``, all the time. First A sends ordinary
requests: what B waits then is A's fair share. Then A sends those of :mod:`faults.greedy`. The oracle allows B a
multiple of the fair wait, stretched by what the machine itself costs: a thread measures how much longer than its CPU
time a small piece of work takes.
"""

import asyncio
import json
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from faults.greedy import CONNECTIONS
from shared.runtime.processes import module_command
from tests.support.eventually import PATIENCE
from tests.support.fleet import PATIENT, Fleet
from tests.support.pictures import SHAPES_MODEL, data_url, picture, png
from tests.support.processes import family
from tests.support.redis_types import at_once

MODEL = "pictures"
FAIR_SECONDS = 8.0
"""For how long key A sends ordinary requests first; no longer than it sends greedy ones."""
FACTOR, SPARE = 4.0, 4.0
"""B's wait may be this multiple of its longest fair one, and so many seconds more."""
STORE_GROWTH, PROCESS_GROWTH, CACHE = 48 * 2**20, 400 * 2**20, 2**30
"""Bytes by which the store and each process may have grown in the end, and the size of a worker's KV cache, by which it
may have grown, too: prefixes fill it for good. Allocators keep some."""


@dataclass
class Wait:
    """One request of B. Times are monotonic seconds."""

    what: str
    began: float
    ended: float
    status: int
    slowdown: float
    """By how much longer than its CPU time a piece of work took meanwhile."""


@dataclass
class Report:
    """What a run has shown."""

    fair: dict[str, float] = field(default_factory=dict)
    """The longest fair wait of each kind of request, in seconds."""
    longest: dict[str, float] = field(default_factory=dict)
    """The longest wait of each kind while the greedy key sends."""
    sent: dict[int, int] = field(default_factory=dict)
    """Number of the greedy key's requests by status; 0: its client left."""
    wrong: list[str] = field(default_factory=list)
    """Broken invariants."""


class _Metronome(threading.Thread):
    """Measures the machine: the ratio of time to CPU time of a small piece of work, again and again."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.beats: list[tuple[float, float]] = []
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.wait(0.1):
            began, used = time.monotonic(), time.thread_time()
            while time.thread_time() < used + 0.01:
                pass
            self.beats.append((began, (time.monotonic() - began) / 0.01))

    def slowdown(self, since: float) -> float:
        """Return the mean ratio since half a second before ``since``."""
        ratios = [ratio for began, ratio in self.beats if began >= since - 0.5]
        return max(1.0, sum(ratios) / len(ratios)) if ratios else 1.0

    def stop(self) -> None:
        self._stopped.set()


class Neighbour:
    """Key B: modest requests, one of each kind at a time."""

    def __init__(self, session: aiohttp.ClientSession, metronome: _Metronome) -> None:
        self._session = session
        self._metronome = metronome
        self._number = 0
        self.waits: list[Wait] = []

    @asynccontextmanager
    async def busy(self) -> AsyncIterator[None]:
        """Send requests of all kinds as long as the block runs; let those that run end."""
        stop = asyncio.Event()
        kinds = {"stream": self._stream, "schema": self._schema, "image": self._image, "live": self._live}
        tasks = [asyncio.create_task(self._repeat(what, send, stop)) for what, send in kinds.items()]
        try:
            yield
        finally:
            stop.set()
            await asyncio.gather(*tasks)

    async def _repeat(self, what: str, send: Callable[[int], Awaitable[int]], stop: asyncio.Event) -> None:
        while not stop.is_set():
            self._number += 1
            began, status = time.monotonic(), 0
            with suppress(TimeoutError, aiohttp.ClientError):
                async with asyncio.timeout(PATIENCE):
                    status = await send(self._number)
            ended = time.monotonic()
            self.waits.append(Wait(what, began, ended, status, self._metronome.slowdown(began)))
            await asyncio.sleep(0.05)

    async def _chat(self, content: Any, **more: Any) -> int:
        body = {"model": MODEL, "max_tokens": 12, "messages": [{"role": "user", "content": content}], **more}
        async with self._session.post("/v1/chat/completions", json=body) as response:
            text = await response.read()
            return response.status if b'"error"' not in text else response.status or 500

    async def _stream(self, number: int) -> int:
        return await self._chat(f"How many shapes are there? {number}", stream=True)

    async def _schema(self, number: int) -> int:
        schema = {"type": "object", "properties": {f"a{number}": {"enum": ["b"]}}, "required": [f"a{number}"]}
        form = {"name": "small", "schema": {**schema, "additionalProperties": False}, "strict": True}
        return await self._chat("Answer.", response_format={"type": "json_schema", "json_schema": form})

    async def _image(self, number: int) -> int:
        url = data_url(png(picture(number).pixels()))
        return await self._chat(
            [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "Describe the picture."}]
        )

    async def _live(self, _: int) -> int:
        async with self._session.get("/live") as response:
            await response.read()
            return response.status


async def run(folder: Path, *, seed: int, seconds: float) -> Report:
    """Run a fleet in ``folder``, and a greedy key for a number of seconds."""
    fleet = await asyncio.to_thread(_start, folder)
    metronome = _Metronome()
    report = Report()
    try:
        keys = [fleet.key("create", "--name", name) for name in ("a", "b")]
        greedy, modest = (key.split()[-1] for key in keys)
        metronome.start()
        url = f"http://127.0.0.1:{fleet.port}"
        async with aiohttp.ClientSession(url, headers={"authorization": f"Bearer {modest}"}) as session:
            neighbour = Neighbour(session, metronome)
            async with neighbour.busy(), aiohttp.ClientSession(url, headers=_bearer(greedy)) as ordinary:
                await _ordinary_load(ordinary, min(FAIR_SECONDS, seconds))
            report.fair = _longest(neighbour.waits)
            neighbour.waits.clear()
            before = _memory(fleet)
            log = folder / "greedy.log"
            async with neighbour.busy():
                arguments = (url, greedy, MODEL, str(seed), str(seconds), str(log))
                process = await asyncio.create_subprocess_exec(
                    *("nice", "-n", "10"), *module_command("faults.greedy", *arguments), stderr=sys.stderr
                )
                if await process.wait() != 0:
                    report.wrong.append("the greedy client failed")
            report.longest = _longest(neighbour.waits)
            report.wrong += _slow(neighbour.waits, report.fair, log)
        for line in log.read_text().splitlines():
            status = int(line.split()[2])
            report.sent[status] = report.sent.get(status, 0) + 1
            if status >= 500 and status != 503:
                report.wrong.append(f"status {status}: {line}")
        report.wrong += await _memory_back(fleet, before)
        if "Traceback" in fleet.logs():
            report.wrong.append(f"a traceback in the logs in {folder}")
    finally:
        metronome.stop()
        await asyncio.to_thread(fleet.stop)
    return report


def _start(folder: Path) -> Fleet:
    fleet = Fleet(folder, lease=PATIENT)
    try:
        fleet.worker("--model", f"{MODEL}={SHAPES_MODEL}", "--cache-size", str(CACHE >> 30))
        fleet.api()
    except BaseException:
        fleet.stop()
        raise
    return fleet


def _bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def _ordinary_load(session: aiohttp.ClientSession, seconds: float) -> None:
    """Send as many concurrent requests as the greedy client does, of the ordinary kind."""
    until = time.monotonic() + seconds

    async def send() -> None:
        while time.monotonic() < until:
            body = {"model": MODEL, "max_tokens": 64, "messages": [{"role": "user", "content": "Describe a picture."}]}
            async with session.post("/v1/chat/completions", json=body) as response:
                await response.read()

    await asyncio.gather(*(send() for _ in range(CONNECTIONS)))


def _longest(waits: list[Wait]) -> dict[str, float]:
    longest: dict[str, float] = {}
    for wait in waits:
        longest[wait.what] = max(longest.get(wait.what, 0.0), wait.ended - wait.began)
    return longest


def _slow(waits: list[Wait], fair: dict[str, float], log: Path) -> list[str]:
    """Return what is wrong with B's requests, each with the greedy requests that ran meanwhile."""
    sent = [line.split(maxsplit=2) for line in log.read_text().splitlines()]
    wrong = []
    for wait in waits:
        taken = wait.ended - wait.began
        allowed = (FACTOR * fair[wait.what] + SPARE) * wait.slowdown
        if wait.status != 200 or taken > allowed:
            beside = [rest for began, ended, rest in sent if float(began) < wait.ended and float(ended) > wait.began]
            wrong.append(
                f"{wait.what}: status {wait.status} after {taken:.2f} s, {allowed:.2f} s allowed, beside "
                + "; ".join(beside[:24])
            )
    return wrong


def _memory(fleet: Fleet) -> dict[str, int]:
    """Return the bytes of the store, and of each ``vinoqueue`` command with its subprocesses."""
    with fleet.redis() as store:
        found = {"store": int(at_once(store.info("memory"))["used_memory"])}
    for process in fleet.processes:
        pages = 0
        for pid in family(process.popen.pid):
            with suppress(OSError):
                pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        found[process.arguments[0]] = pages * 4096
    return found


async def _memory_back(fleet: Fleet, before: dict[str, int]) -> list[str]:
    """Wait until memory has come back; return what is left when patience ends."""
    growth = {"store": STORE_GROWTH, "worker": PROCESS_GROWTH + CACHE}
    allowed = {name: size + growth.get(name, PROCESS_GROWTH) for name, size in before.items()}
    until = time.monotonic() + PATIENCE
    while True:
        now = await asyncio.to_thread(_memory, fleet)
        left = [name for name in before if now[name] > allowed[name]]
        if not left or time.monotonic() > until:
            return [f"{name} had {before[name] >> 20} MiB and has {now[name] >> 20} MiB" for name in left]
        await asyncio.sleep(1)


def summary(report: Report) -> str:
    """Return the report in a few lines."""
    waits = ", ".join(
        f"{what} {report.fair[what]:.2f} → {longest:.2f} s"
        for what, longest in report.longest.items()
        if what in report.fair
    )
    sent = json.dumps(dict(sorted(report.sent.items())))
    broken = "".join(f"\n  BROKEN {one}" for one in report.wrong)
    return f"neighbours: B's longest waits, beside ordinary → greedy requests: {waits}; A's requests {sent}{broken}"
