"""The clients of a run: closed loops that come back when they are refused, and leave when the dice say so."""

import asyncio
import random
import socket
import time
from collections.abc import Iterable
from contextlib import suppress

from faults.background_client import respond
from faults.client import chat, request_bytes
from faults.history import Exchange, History
from faults.prompts import PROMPTS, VECTORS, vector_prompts
from faults.service import Service

_COME_BACK = frozenset((429, 503))
_LONGEST_STAY = 2.0
"""Seconds within which a client that leaves has left."""

ENDLESS = 8000
"""Tokens that a client asks for that will leave: more than it can get, so that a request that is not ended is found."""


class Clients:
    """Sends the load of a service's scenario and writes the history."""

    def __init__(self, service: Service, history: History, seed: int) -> None:
        self._service = service
        self._load = service.scenario.load
        self._history = history
        self._seed = seed
        self._turn = 0
        self._prompts = _prompts(service.catalogue) or dict.fromkeys(PROMPTS[service.model], service.model)
        self._prompts |= vector_prompts() if service.scenario.vectors else {}
        """The prompts, and the model of each."""

    async def run(self) -> None:
        """Send everything; returns when each client is done."""
        end = time.monotonic() + self._load.seconds if not self._load.requests else None
        await asyncio.gather(*(self._client(number, end) for number in range(self._load.clients)))

    async def expected(self) -> dict[str, str]:
        """Ask each prompt once, undisturbed, and return its text, unless it is random."""
        broken = {name for name, source in self._service.catalogue.items() if "load" in source}
        sound = [prompt for prompt, model in self._prompts.items() if model not in broken]
        asked = [self._exchange(-1, number, prompt, self._load.tokens) for number, prompt in enumerate(sound)]
        for one in asked:
            await chat(self._service.apis[0].port, self._service.model, one)
            assert one.outcome == "completed", one
        return {one.prompt: one.text for one in asked if not one.sampled}

    async def poison(self) -> None:
        """Send a request that kills every engine, and take its end."""
        await self._ask(self._exchange(-2, 0, "[[crash]]", 10))

    async def _client(self, client: int, end: float | None) -> None:
        dice = random.Random(f"{self._seed} client {client}")
        number = 0
        while (number < self._load.requests) if end is None else (time.monotonic() < end):
            stay = dice.uniform(0, _LONGEST_STAY) ** 2 / _LONGEST_STAY if dice.random() < self._load.aborted else None
            tokens = self._load.tokens if stay is None else ENDLESS
            streamed = dice.random() < self._load.streamed
            exchange = self._exchange(client, number, dice.choice(tuple(self._prompts)), tokens, streamed=streamed)
            await self._ask(exchange, stay)
            number += 1

    async def _ask(self, exchange: Exchange, stay: float | None = None) -> None:
        """Send one request until it is accepted or patience ends; leave after ``stay`` seconds, if given."""
        deadline = time.monotonic() + self._load.patience
        while True:
            self._history.begin(exchange)
            await self._send(exchange, stay)
            again = exchange.status in _COME_BACK or (exchange.outcome == "cut" and not exchange.status)
            if not again or time.monotonic() > deadline:
                return
            pause = min(exchange.retry_after or 0.1, 1.0)
            await asyncio.sleep(pause)
            exchange = self._exchange(
                exchange.client, exchange.number, exchange.prompt, exchange.tokens, streamed=exchange.streamed
            )

    def _exchange(self, client: int, number: int, prompt: str, tokens: int, *, streamed: bool = True) -> Exchange:
        return Exchange(
            client=client,
            number=number,
            prompt=prompt,
            model=self._prompts.get(prompt, self._service.model),
            tokens=tokens,
            streamed=streamed and self._prompts.get(prompt) not in VECTORS,
            sampled=self._load.sampled,
            sent=time.monotonic(),
            stored_as=f"{client}/{number}" if self._load.stored else "",
        )

    async def _send(self, exchange: Exchange, stay: float | None) -> None:
        self._turn += 1
        port = self._service.apis[self._turn % len(self._service.apis)].port
        if self._load.background:
            await respond(lambda: [api.port for api in self._service.apis], port, self._service.model, exchange)
            return
        task = asyncio.create_task(chat(port, self._service.model, exchange))
        try:
            async with asyncio.timeout(stay):
                await asyncio.shield(task)
        except TimeoutError:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def _prompts(catalogue: Iterable[str]) -> dict[str, str]:
    """Return prompts for the models of ``catalogue``, each with its model."""
    return {f"Tell {name} about {topic}. [[tokens 100000]]": name for name in catalogue for topic in ("rain", "snow")}


STUCK_TOKENS = 6000
"""Tokens that each client asks for that never reads."""


class StuckClients:
    """Clients that ask for long streams and never read."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def open(self, service: Service, count: int) -> None:
        """Connect ``count`` of them."""
        self._sockets += [_stuck(service, number) for number in range(count)]

    def unserved(self) -> int:
        """How many of them have not been sent the beginning of a stream. To be asked at the end: it reads."""
        return sum(not _served(one) for one in self._sockets)

    def close(self) -> None:
        """Hang up."""
        for one in self._sockets:
            one.close()


def _stuck(service: Service, number: int) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", service.apis[number % len(service.apis)].port))
    connection.sendall(
        request_bytes(service.model, f"[[tokens {STUCK_TOKENS}]]", STUCK_TOKENS, name=service.model, streamed=True)
    )
    return connection


def _served(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(64).startswith(b"HTTP/1.1 200")
    except OSError:
        return False
