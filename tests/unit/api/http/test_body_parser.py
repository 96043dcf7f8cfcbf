"""Large bodies are parsed in a thread, in turn for each tenant, and within the tenant's share."""

import asyncio
import gzip
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from arq.connections import ArqRedis
from quart import Request
from werkzeug.datastructures import Headers

from api.app import create_app
from api.build import build
from api.dialects.base import body
from api.fairness import SMALL, FairPlaces, FairThread
from api.http.bodies import BodyParser, decode
from shared.protocol.errors import ProblemKind, RequestRefused
from shared.runtime.settings import ApiSettings
from tests.support.dialects import DIALECTS
from tests.support.eventually import PATIENCE

LARGE = SMALL + 1
SETTINGS = ApiSettings(max_body=4 * SMALL, max_media_body=4 * SMALL)


class Gate:
    """Work that ends when the gate is opened."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.done: list[str] = []

    def work(self, name: str) -> Callable[[], str]:
        def run() -> str:
            assert self.opened.wait(PATIENCE)
            self.done.append(name)
            return name

        return run


async def test_only_a_large_body_leaves_the_event_loop() -> None:
    parser, here = BodyParser(SETTINGS, FairThread()), threading.get_ident()
    assert await parser.run("a", SMALL, threading.get_ident) == here
    assert await parser.run("a", LARGE, threading.get_ident) != here
    with pytest.raises(ZeroDivisionError):
        await parser.run("a", LARGE, lambda: 1 // 0)


async def test_tenants_take_turns() -> None:
    parser, gate = BodyParser(SETTINGS, FairThread()), Gate()
    names = ["a1", "a2", "a3", "a4", "b1", "c1", "b2"]
    tasks = [asyncio.create_task(parser.run(name[0], LARGE, gate.work(name))) for name in names]
    await asyncio.sleep(0)
    gate.opened.set()
    assert await asyncio.gather(*tasks) == names
    assert gate.done == ["a1", "a2", "b1", "c1", "a3", "b2", "a4"]


async def test_a_tenant_with_too_many_bytes_gets_429_with_a_time() -> None:
    parser, gate = BodyParser(SETTINGS, FairThread()), Gate()
    size = SETTINGS.max_body
    tasks = [asyncio.create_task(parser.run("a", size, gate.work("a"))) for _ in range(4)]
    await asyncio.sleep(0)
    with pytest.raises(RequestRefused) as refusal:
        await parser.run("a", LARGE, gate.work("a"))
    assert (refusal.value.problem.kind, refusal.value.problem.retry_after) == (ProblemKind.QUEUE_FULL, 1.0)
    tasks.append(asyncio.create_task(parser.run("b", 10 * size, gate.work("b"))))
    await asyncio.sleep(0)
    gate.opened.set()
    await asyncio.gather(*tasks)
    assert await parser.run("a", 16 * size, gate.work("c")) == "c"


async def test_the_bodies_of_all_tenants_are_bounded() -> None:
    parser, gate = BodyParser(SETTINGS, FairThread()), Gate()
    tasks = [asyncio.create_task(parser.run(name, 4 * SETTINGS.max_body, gate.work(name))) for name in "abcd"]
    await asyncio.sleep(0)
    with pytest.raises(RequestRefused, match="Too many large requests"):
        await parser.run("e", LARGE, gate.work("e"))
    gate.opened.set()
    await asyncio.gather(*tasks)


async def test_a_body_whose_client_leaves_gives_its_turn_back() -> None:
    parser, gate = BodyParser(SETTINGS, FairThread()), Gate()
    tasks = [asyncio.create_task(parser.run("a", LARGE, gate.work(name))) for name in ("1", "2", "3")]
    await asyncio.sleep(0)
    for task in tasks[:2]:
        task.cancel()
    await asyncio.sleep(0)
    gate.opened.set()
    assert await tasks[2] == "3"
    assert gate.done == ["1", "3"]  # What runs in a thread cannot be stopped.


async def test_a_tenant_occupies_at_most_its_share_of_places() -> None:
    places, occupied, leave = FairPlaces(3, share=2), list[str](), asyncio.Event()

    async def occupy(tenant: str) -> None:
        async with places.of(tenant):
            occupied.append(tenant)
            await leave.wait()

    tasks = [asyncio.create_task(occupy(tenant)) for tenant in "aaabc"]
    await asyncio.sleep(0.01)
    assert occupied == ["a", "a", "b"]
    leave.set()
    await asyncio.gather(*tasks)
    assert occupied[3:] == ["a", "c"]


MESSAGES = [{"role": "user", "content": "x" * LARGE}]
BODIES: dict[str, dict[str, Any]] = {
    **{tried.path: tried.body("x" * LARGE) for tried in DIALECTS.values()},
    "/v1/responses/input_tokens": {"input": "x" * LARGE},
    "/v1/messages/count_tokens": {"messages": MESSAGES},
    "/tokenize": {"prompt": "x" * LARGE},
    "/detokenize": {"tokens": [1] * LARGE},
    "/v1/batches": {"metadata": "x" * LARGE},
    "/v1/chat/completions/chatcmpl-1": {"metadata": "x" * LARGE},
}


async def test_every_route_parses_large_bodies_in_the_thread(
    redis: ArqRedis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []

    def parse(text: str) -> Any:
        threads.append(threading.get_ident())
        return json.loads(text)

    monkeypatch.setattr(body, "_parse", parse)
    client = create_app(build(redis, ApiSettings(files_dir=str(tmp_path)), "r")).test_client()
    for path, fields in BODIES.items():
        response = await client.post(path, json={"model": "m"} | fields)
        assert 400 <= response.status_code < 600, path
        assert threads, path
        assert threading.get_ident() not in threads, path
        threads.clear()


async def test_a_small_encoded_body_is_decoded_in_the_thread_where_tenants_have_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[int] = []

    def decoding(body: bytes, coding: str, limit: int) -> bytes:
        threads.append(threading.get_ident())
        return decode(body, coding, limit)

    monkeypatch.setattr("api.http.bodies.decode", decoding)
    request = Request(
        "POST",
        "http",
        "/",
        b"",
        Headers({"content-type": "application/json", "content-encoding": "gzip"}),
        "",
        "1.1",
        {},  # type: ignore[typeddict-item]
        send_push_promise=None,  # type: ignore[arg-type]
    )
    request.body.append(gzip.compress(b"{}"))
    request.body.set_complete()
    assert await BodyParser(SETTINGS, FairThread()).read(request, "a", bytes) == b"{}"
    assert threads
    assert threading.get_ident() not in threads
