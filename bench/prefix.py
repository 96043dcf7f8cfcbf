"""prefix: gain of prefix routing for long prompts with a shared prefix, on the real model.

The same workers are sent as many groups of prompts with routing by prefix and without it in turns, and no two turns
share a text.
"""

import asyncio
import itertools
import random
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arq.connections import ArqRedis

from bench.prompts import VOCABULARY
from bench.report import median_and_spread, save, table, with_spread
from cli.bench.report import percentile
from shared.protocol.events import TERMINAL, Delta, Finished, Started, decode_frame
from shared.protocol.queue import JobQueue
from shared.protocol.request import ChatRequest, Job, Message, Sampling
from shared.redis import keys
from shared.redis.client import connect
from shared.runtime.event_loop import run as run_loop
from tests.support.fleet import Fleet
from worker.model.local import resolve

WORKERS = 4
GROUPS = 8
REQUESTS = 6
"""Prompts of a group."""
CONCURRENCY = 4
TOKENS = 8
_SHARED_WORDS = 1450
"""About 1,500 tokens."""


@dataclass(slots=True)
class Measured:
    """What one turn saw: for each request, the seconds to its first token, and whether its worker knew its group."""

    seconds: list[float] = field(default_factory=list)
    met: list[bool] = field(default_factory=list)
    prompt_tokens: int = 0


@dataclass(slots=True)
class _Request:
    group: int
    done: asyncio.Future[None]
    began: float = 0.0
    first: float = 0.0
    worker: str = ""


class Client:
    """Puts jobs into the queue and subscribes to their frames, like an API replica."""

    def __init__(self, redis: ArqRedis, model: str) -> None:
        self._redis = redis
        self._model = model
        self._replica = uuid.uuid4().hex
        self._open: dict[str, _Request] = {}
        self._has: set[tuple[str, int]] = set()
        self._groups = itertools.count()
        self._measured = Measured()

    async def listen(self) -> None:
        """Receive frames until cancelled."""
        async with self._redis.pubsub(ignore_subscribe_messages=True) as pubsub:
            await pubsub.subscribe(keys.replica_channel(self._replica))
            while True:
                message = await pubsub.get_message(timeout=None)
                for entry in decode_frame(message["data"]) if message else ():
                    self._hear(self._open[entry.job], entry.event)

    async def turn(self, *, routing: bool, seed: int) -> Measured:
        """Send all groups' prompts in a random order, and wait for the answers."""
        self._measured = Measured()
        queue = JobQueue(self._redis, self._model, prefix_routing=routing)
        dice = random.Random(seed)  # noqa: S311 - texts, no secrets
        numbers = list(itertools.islice(self._groups, GROUPS))
        prefixes = {number: " ".join(dice.choices(VOCABULARY, k=_SHARED_WORDS)) for number in numbers}
        order = [number for number in numbers for _ in range(REQUESTS)]
        dice.shuffle(order)
        slots = asyncio.Semaphore(CONCURRENCY)

        async def send(number: int, question: str) -> None:
            async with slots:
                await self._ask(queue, number, prefixes[number], question)

        await asyncio.gather(*(send(number, dice.choice(VOCABULARY)) for number in order))
        return self._measured

    async def _ask(self, queue: JobQueue, group: int, beginning: str, question: str) -> None:
        request = ChatRequest(
            model=self._model,
            messages=(
                Message(role="system", content=beginning),
                Message(role="user", content=f"Write about a {question}."),
            ),
            sampling=Sampling(max_tokens=TOKENS, temperature=0.0),
        )
        job = Job(id=uuid.uuid4().hex, reply_to=self._replica, request=request)
        asked = self._open[job.id] = _Request(group, asyncio.get_running_loop().create_future())
        asked.began = time.perf_counter()
        await queue.enqueue([job], limit=1_000_000)
        await asked.done
        self._measured.seconds.append(asked.first - asked.began)

    def _hear(self, asked: _Request, event: object) -> None:
        if isinstance(event, Started):
            asked.worker = event.worker
            self._measured.prompt_tokens = event.prompt_tokens
        if isinstance(event, Delta) and not asked.first:
            asked.first = time.perf_counter()
            self._measured.met.append((asked.worker, asked.group) in self._has)
            self._has.add((asked.worker, asked.group))
        if isinstance(event, Finished):
            asked.done.set_result(None)
        elif isinstance(event, TERMINAL):
            asked.done.set_exception(AssertionError(f"a request failed: {event}"))


def run(folder: Path, *, runs: int = 5) -> dict[str, Any]:
    """Measure, print the table, and return the result."""
    fleet = Fleet(folder)
    try:
        for _ in range(WORKERS):
            fleet.worker("--log-level", "warning")
        pairs = run_loop(_pairs(fleet.url, runs))
    finally:
        fleet.stop()
    return report(pairs)


def report(pairs: list[tuple[Measured, Measured]]) -> dict[str, Any]:
    """Print and save what turns with routing and without it have measured."""
    rows = []
    for name, turns in (("on", [pair[0] for pair in pairs]), ("off", [pair[1] for pair in pairs])):
        rows.append(
            {
                "routing": name,
                "TTFT p50 ms": median_and_spread([percentile(turn.seconds, 0.5) for turn in turns])[0] * 1000,
                "TTFT p99 ms": median_and_spread([percentile(turn.seconds, 0.99) for turn in turns])[0] * 1000,
                "met their prefix": median_and_spread([sum(turn.met) / len(turn.met) for turn in turns])[0],
                "prompt tokens": turns[0].prompt_tokens,
            }
        )
    ratios = {
        f"p{share * 100:.0f} on/off": with_spread(
            [percentile(on.seconds, share) / percentile(off.seconds, share) for on, off in pairs]
        )
        for share in (0.5, 0.99)
    }
    title = f"prefix: {GROUPS} groups of {REQUESTS} prompts over {WORKERS} workers, {CONCURRENCY} at a time"
    print(table(f"{title}, medians of {len(pairs)} alternating runs", rows))
    print(", ".join(f"TTFT {name}: {ratio}" for name, ratio in ratios.items()))
    save("prefix", {"rows": rows, "ratios": ratios})
    return {"rows": rows, "ratios": ratios}


async def _pairs(url: str, runs: int) -> list[tuple[Measured, Measured]]:
    redis = connect(url)
    client = Client(redis, resolve("default").name)
    listening = asyncio.create_task(client.listen())
    try:
        return [await pair(client, number) for number in range(runs)]
    finally:
        listening.cancel()
        with suppress(asyncio.CancelledError):
            await listening
        await redis.aclose(close_connection_pool=True)


async def pair(client: Client, number: int) -> tuple[Measured, Measured]:
    """One turn with routing and one without it, the first of them by turns."""
    turns = {}
    for routing in (True, False) if number % 2 == 0 else (False, True):
        turns[routing] = await client.turn(routing=routing, seed=2 * number + routing)
    return turns[True], turns[False]
