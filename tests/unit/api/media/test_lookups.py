"""Lookups of host names: names that are never resolved occupy threads of their tenant only."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from api.media.data_url import MediaError
from api.media.lookups import LOOKUPS_OF_TENANT, MAX_LOOKUPS, Lookups
from shared.protocol.errors import RequestRefused
from tests.support.eventually import PATIENCE, eventually


class NameServer:
    """Knows "known", and answers nothing about "silent" names until it is told to."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.asked: list[str] = []

    def getaddrinfo(self, host: str, port: int, **_: Any) -> list[Any]:
        self.asked.append(host)
        if host == "known":
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("8.8.8.8", port))]
        self.answers.wait(PATIENCE)
        raise socket.gaierror


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServer]:
    server = NameServer()
    monkeypatch.setattr("api.media.lookups.socket.getaddrinfo", server.getaddrinfo)
    yield server
    server.answers.set()


async def test_silent_names_of_tenants_leave_threads_to_others(names: NameServer) -> None:
    lookups = Lookups(patience=PATIENCE)
    tenants = MAX_LOOKUPS // LOOKUPS_OF_TENANT - 1
    tasks = [
        asyncio.create_task(lookups.addresses("silent", 80, tenant=str(tenant)))
        for tenant in range(tenants)
        for _ in range(MAX_LOOKUPS)
    ]
    await eventually(lambda: len(names.asked) == LOOKUPS_OF_TENANT * tenants, "the lookups")
    assert await lookups.addresses("known", 80, tenant="another") == ["8.8.8.8"]
    assert len(names.asked) == LOOKUPS_OF_TENANT * tenants + 1
    for task in tasks:
        task.cancel()


async def test_a_thread_stays_occupied_when_its_caller_has_left(names: NameServer) -> None:
    lookups = Lookups(patience=0.05)
    left = [asyncio.create_task(lookups.addresses("silent", 80, tenant="a")) for _ in range(LOOKUPS_OF_TENANT)]
    await eventually(lambda: len(names.asked) == LOOKUPS_OF_TENANT, "the lookups")
    for task in left:
        task.cancel()
    with pytest.raises(RequestRefused) as refusal:
        await lookups.addresses("known", 80, tenant="a")
    assert refusal.value.problem.retry_after == 1.0
    names.answers.set()

    async def is_free() -> bool:
        with suppress(RequestRefused):
            return bool(await lookups.addresses("known", 80, tenant="a"))
        return False

    async with asyncio.timeout(PATIENCE):
        while not await is_free():
            pass


async def test_unknown_names_and_addresses(names: NameServer) -> None:
    names.answers.set()
    lookups = Lookups(patience=PATIENCE)
    with pytest.raises(MediaError, match="can't be resolved"):
        await lookups.addresses("unknown", 80, tenant="a")
    assert await lookups.addresses("127.0.0.1", 80, tenant="a") == ["127.0.0.1"]
    assert names.asked == ["unknown"]


def test_lookups_that_outlive_the_event_loop_do_no_harm(names: NameServer) -> None:
    complaints: list[Any] = []

    async def look_up() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        lookups = Lookups(patience=PATIENCE)
        tasks = [asyncio.create_task(lookups.addresses("silent", 80, tenant=str(n))) for n in range(MAX_LOOKUPS)]
        await eventually(lambda: len(names.asked) == MAX_LOOKUPS, "the lookups")
        for task in tasks:
            task.cancel()

    asyncio.run(look_up())
    assert not complaints
