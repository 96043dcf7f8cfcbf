"""Shares of tenants in places and memory."""

import asyncio

import pytest

from api.media.shares import NO_KEY, Memory, Places
from shared.protocol.errors import RequestRefused
from tests.support.eventually import PATIENCE


def places(total: int = 4, share: int = 2, patience: float = PATIENCE) -> Places:
    return Places(total, share=share, patience=patience, full="Too many.")


async def test_a_tenant_has_its_share_of_places() -> None:
    shared = places()
    for _ in range(2):
        await shared.acquire("a")
    third = asyncio.create_task(shared.acquire("a"))
    await asyncio.sleep(0)
    for _ in range(2):
        await shared.acquire("b")
    assert not third.done()
    shared.release("a")
    await third


async def test_whoever_waits_too_long_is_refused() -> None:
    shared = places(total=1, patience=0.01)
    await shared.acquire("a")
    for tenant in "ab":
        with pytest.raises(RequestRefused, match=r"Too many\. Please try again later"):
            await shared.acquire(tenant)
    shared.release("a")
    await shared.acquire("b")


async def test_whoever_leaves_occupies_nothing() -> None:
    shared = places(total=1)
    await shared.acquire("a")
    waiting = asyncio.create_task(shared.acquire("b"))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    shared.release("a")
    await shared.acquire("b")


async def test_without_a_key_there_is_no_share() -> None:
    shared = places(total=4, share=1)
    for _ in range(4):
        await shared.acquire(NO_KEY)


def test_a_request_may_occupy_all_memory_and_several_what_they_leave_free() -> None:
    memory = Memory(100)
    with memory.request("a") as first:
        first.add(100)
    with memory.request("a") as first, memory.request("a") as second, memory.request("b") as other:
        first.add(25)
        second.add(25)
        with pytest.raises(RequestRefused):
            second.add(1)
        other.add(49)
        with pytest.raises(RequestRefused):
            other.add(1)
    with memory.request("a") as first:
        first.add(100)
    assert memory.bytes == 0


def test_requests_without_a_key_share_all_memory() -> None:
    memory = Memory(100)
    with memory.request(NO_KEY) as first, memory.request(NO_KEY) as second:
        first.add(50)
        second.add(50)
