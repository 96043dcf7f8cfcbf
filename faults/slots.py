"""Shares of slots: key A sends more endless requests than there are slots, and key B's requests are served beside them.

Requests that can leave their slots leave them to B. Of those that can't, for they have a seed, A gets no more than half
while B is known to be active. The engine is simulated, so what is measured are slots, not a machine.
"""

import asyncio
import json
import math
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from shared.redis import keys
from tests.support.eventually import eventually
from tests.support.fleet import Fleet, Launch, execute, fleet
from tests.support.redis_types import at_once
from worker.simulated.engine import encode, is_one_sample

SLOTS, REQUESTS = 32, 40
"""Slots of the worker, and requests of key A."""
KINDS: dict[str, dict[str, object]] = {"can leave": {"temperature": 0}, "can't leave": {"temperature": 1, "seed": 7}}
"""Fields of A's requests."""
_SIMULATED = ("--engine", "simulated", "--model", "sim=[[context 1000000]]", "--sim-step", "0.02")


@dataclass
class Shares:
    """What a run with A's requests of one kind has shown."""

    kind: str
    alone: int = 0
    """Slots that A has before B's first request."""
    beside: int = 0
    """Slots that A has when B's requests begin."""
    first: list[float] = field(default_factory=list)
    """Seconds to the first token of each of B's requests."""
    continued: int = 0
    """How often a request of A went on after it had left its slot."""
    throughput: float = 0.0
    """Tokens per second beside B, as a part of those alone."""
    wrong: list[str] = field(default_factory=list)
    """Broken invariants."""

    def __str__(self) -> str:
        median, longest = (statistics.median(self.first), max(self.first)) if self.first else (math.nan, math.nan)
        return (
            f"slots, requests that {self.kind}: {self.alone} alone, {self.beside} when B begins; B's first token after "
            f"{median:.2f} s, at most {longest:.2f} s; A's requests went on {self.continued} times; throughput "
            f"{self.throughput:.2f} of that alone" + "".join(f"\n  BROKEN {one}" for one in self.wrong)
        )


async def run(
    folder: Path, kind: str, *, seconds: float, lease: float | None = None, launch: Launch = execute
) -> Shares:
    """Run a fleet in ``folder``, with a ``lease`` in seconds. Throughputs are measured for ``seconds`` each."""
    shares = Shares(kind)
    with fleet(folder, lease=lease, launch=launch) as running:
        running.worker(*_SIMULATED, "--max-batch", str(SLOTS))
        greedy, modest = (running.key("create", "--name", name).split()[-1] for name in "ab")
        running.api("--queue-timeout", "600")
        async with _client(running, greedy) as a, _client(running, modest, **{"x-queue-timeout": "120"}) as b:
            async with _endless(a, shares):
                shares.alone = await _running(running, SLOTS)
                alone = await _rate(running, seconds)
                if kind == "can leave":
                    await _beside(running, b, shares, seconds, alone)
            if kind != "can leave":
                await eventually(lambda: _jobs(running) == (0, 0), "A's requests to be cancelled")
                await _first_token(b)
                async with _endless(a, shares):
                    await _beside(running, b, shares, seconds, alone)
    return shares


async def _beside(running: Fleet, b: aiohttp.ClientSession, shares: Shares, seconds: float, alone: float) -> None:
    """Have B send one request after another, at least three."""
    shares.beside = await _running(running, SLOTS if shares.kind == "can leave" else SLOTS // 2)
    rate, until = asyncio.create_task(_rate(running, seconds)), time.monotonic() + seconds
    while not shares.wrong and (time.monotonic() < until or len(shares.first) < 3):
        try:
            shares.first.append(await _first_token(b))
        except AssertionError as error:
            shares.wrong.append(f"B's request: {error}")
    shares.throughput = await rate / alone
    if shares.kind == "can leave" and not shares.wrong:
        await eventually(lambda: _continued(running) and _jobs(running)[0] == SLOTS, "A's requests to go on")
        shares.continued = _continued(running)


@asynccontextmanager
async def _client(running: Fleet, key: str, **headers: str) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(
        f"http://127.0.0.1:{running.port}",
        headers={"authorization": f"Bearer {key}", **headers},
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(),
    ) as session:
        yield session


@asynccontextmanager
async def _endless(session: aiohttp.ClientSession, shares: Shares) -> AsyncIterator[None]:
    """Send A's requests, and check their texts when the block ends."""
    texts = [""] * REQUESTS

    async def read(number: int) -> None:
        async for text in _stream(session, 900_000, KINDS[shares.kind]):
            texts[number] += text

    tasks = [asyncio.create_task(read(number)) for number in range(REQUESTS)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    shares.wrong += [f"A's request has ended: {one!r}" for one in ended if not isinstance(one, asyncio.CancelledError)]
    longest = max(texts, key=len)
    for text in texts:
        if not (longest.startswith(text) if shares.kind == "can leave" else is_one_sample(encode(text))):
            shares.wrong.append(f"the text of a request of A differs: {text[-80:]!r}")


async def _stream(session: aiohttp.ClientSession, tokens: int, fields: dict[str, Any]) -> AsyncIterator[str]:
    message = {"role": "user", "content": f"[[tokens {tokens}]]"}
    body = {"model": "sim", "messages": [message], "max_tokens": tokens, "stream": True, **fields}
    async with session.post("/v1/chat/completions", json=body) as response:
        if response.status != 200:
            raise AssertionError(f"status {response.status}: {await response.text()}")
        async for line in response.content:
            if line.startswith(b'data: {"error"'):
                raise AssertionError(line.decode())
            if line.startswith(b"data: {"):
                for choice in json.loads(line[6:])["choices"]:
                    yield choice["delta"].get("content") or ""


async def _first_token(session: aiohttp.ClientSession) -> float:
    """Send a short request; return the seconds to its first token."""
    began, first = time.monotonic(), 0.0
    async for text in _stream(session, 10, {}):
        if text and not first:
            first = time.monotonic() - began
    return first


def _continued(running: Fleet) -> int:
    with running.redis() as store:
        return sum(json.loads(move)["to"] is not None for move in at_once(store.lrange(keys.moves("sim"), 0, -1)))


def _jobs(running: Fleet) -> tuple[int, int]:
    """Return how many jobs run, and how many wait."""
    with running.redis() as store:
        return at_once(store.zcard(keys.inflight("sim"))), at_once(store.zcard(keys.queue("sim")))


async def _running(running: Fleet, slots: int) -> int:
    """Wait until all of A's requests are in the queue or run, in ``slots`` slots at least; return how many run."""
    await eventually(
        lambda: sum(_jobs(running)) == REQUESTS and _jobs(running)[0] >= slots, "A's requests", details=running.logs
    )
    await asyncio.sleep(1.5)  # a worker that polls has claimed what else it may claim
    return _jobs(running)[0]


async def _rate(running: Fleet, seconds: float) -> float:
    """Return the tokens per second of the worker, which reports them with each heartbeat."""
    reports = [(time.monotonic(), running.workers()[0].get("tokens", 0))]
    while len(reports) < 2 or time.monotonic() < reports[0][0] + seconds:
        await asyncio.sleep(0.05)
        with suppress(IndexError):
            if (tokens := running.workers()[0].get("tokens", 0)) != reports[-1][1]:
                reports.append((time.monotonic(), tokens))
    (began, before), (ended, after) = reports[min(1, len(reports) - 2)], reports[-1]
    return float((after - before) / (ended - began))
