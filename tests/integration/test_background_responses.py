"""Streams of background responses that are cut anywhere, and resumed at any replica, while processes die."""

import asyncio
import json
import random
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from itertools import pairwise

import httpx
import pytest

from tests.support.eventually import PATIENCE
from tests.support.fleet import Fleet, fleet
from tests.support.fuzzing import cases

STREAMS = cases(60)
SEED = 20
TERMINAL = ("response.completed", "response.incomplete", "response.failed")
WORKER = ("--engine", "simulated", "--model", "sim", "--max-batch", "16", "--sim-step", "0.01")


class Replicas:
    """A fleet with two replicas."""

    def __init__(self, running: Fleet) -> None:
        self.fleet = running
        running.add_workers(2, *WORKER)
        self.ports = []
        self.apis = []
        for _ in range(2):
            self.apis.append(running.api())
            self.ports.append(running.port)

    def url(self, replica: int, path: str = "") -> str:
        return f"http://127.0.0.1:{self.ports[replica]}/v1/responses{path}"


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    """Shared by both tests, of which the second kills a part of it."""
    with fleet(tmp_path_factory.mktemp("fleet")) as running:
        yield Replicas(running)


async def events(response: httpx.Response) -> AsyncGenerator[tuple[str, int, str], None]:
    """Yield the type, the number and the text of each event."""
    async for line in response.aiter_lines():
        if line.startswith("data: "):
            event = json.loads(line.removeprefix("data: "))
            yield event["type"], event["sequence_number"], line


async def read(
    client: httpx.AsyncClient, method: str, url: str, most: int | None, body: dict[str, object] | None = None
) -> list[tuple[str, int, str]]:
    """Return the events of a stream, which is cut after ``most``."""
    found: list[tuple[str, int, str]] = []
    async with client.stream(method, url, json=body) as response:
        assert response.status_code == 200, await response.aread()
        async with aclosing(events(response)) as incoming:
            async for event in incoming:
                found.append(event)
                if len(found) == most:
                    break
    return found


async def cut_and_resume(client: httpx.AsyncClient, replicas: Replicas, chance: random.Random) -> None:
    body = {
        "model": "sim",
        "input": f"[[tokens {chance.randrange(5, 60)}]] story {chance.random()}",
        "background": True,
        "stream": True,
        "temperature": 0,
    }
    got = await read(client, "POST", replicas.url(chance.randrange(2)), chance.randrange(1, 40), body)
    response_id = json.loads(got[0][2].removeprefix("data: "))["response"]["id"]
    while got[-1][0] not in TERMINAL:
        url = replicas.url(chance.randrange(2), f"/{response_id}?stream=true&starting_after={got[-1][1]}")
        got += await read(client, "GET", url, chance.choice((None, chance.randrange(1, 30))))
    assert [number for _, number, _ in got] == list(range(len(got)))
    assert sum(kind in TERMINAL for kind, _, _ in got) == 1
    assert await read(client, "GET", replicas.url(chance.randrange(2), f"/{response_id}?stream=true"), None) == got
    response = json.loads(got[-1][2].removeprefix("data: "))["response"]
    assert (await client.get(replicas.url(0, f"/{response_id}"))).json() == response
    deltas = [json.loads(line.removeprefix("data: ")) for kind, _, line in got if kind == "response.output_text.delta"]
    assert "".join(delta["delta"] for delta in deltas) == response["output"][0]["content"][0]["text"]


async def test_streams_that_are_cut_anywhere_lose_and_repeat_nothing(replicas: Replicas) -> None:
    chance = random.Random(SEED)
    places = asyncio.Semaphore(32)

    async def one(seed: float) -> None:
        async with places:
            await cut_and_resume(client, replicas, random.Random(seed))

    async with httpx.AsyncClient(timeout=PATIENCE) as client:
        await asyncio.gather(*(one(chance.random()) for _ in range(STREAMS)))


async def test_background_responses_survive_the_death_of_their_replica_and_worker(replicas: Replicas) -> None:
    async with httpx.AsyncClient(timeout=PATIENCE) as client:
        body = {"model": "sim", "input": "[[tokens 400]]", "background": True, "temperature": 0}
        started = [(await client.post(replicas.url(0), json=body)).json()["id"] for _ in range(8)]
        streamed = await read(client, "POST", replicas.url(0), 20, body | {"stream": True})
        response_id = json.loads(streamed[0][2].removeprefix("data: "))["response"]["id"]
        replicas.apis[0].kill()
        replicas.fleet.processes[0].kill()
        url = replicas.url(1, f"/{response_id}?stream=true&starting_after={streamed[-1][1]}")
        rest = await read(client, "GET", url, None)
        numbers = [number for _, number, _ in (*streamed, *rest)]
        assert all(after == before + 1 for before, after in pairwise(numbers))
        whole = json.loads(rest[-1][2].removeprefix("data: "))["response"]
        assert (whole["status"], whole["usage"]["output_tokens"]) == ("completed", 400)

        async def ended(name: str) -> dict[str, object]:
            while True:
                found: dict[str, object] = (await client.get(replicas.url(1, f"/{name}"))).json()
                if found["status"] not in ("queued", "in_progress"):
                    return found
                await asyncio.sleep(0.1)

        async with asyncio.timeout(PATIENCE):
            for name in started:
                response = await ended(name)
                assert (response["status"], response["output"]) == ("completed", _renamed(whole["output"], name))


def _renamed(output: list[dict[str, object]], response_id: str) -> list[dict[str, object]]:
    """Return output items as another response has them."""
    response_id = response_id.removeprefix("resp_")
    return [item | {"id": f"msg_{response_id}{str(item['id'])[-4:]}"} for item in output]
