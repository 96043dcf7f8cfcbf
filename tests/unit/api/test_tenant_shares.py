"""Shares of tenants in places and memory."""

import pytest

from api.fairness import NO_KEY, FairPlaces, TenantBytes
from shared.protocol.errors import RequestRefused
from tests.support.eventually import PATIENCE


async def test_whoever_waits_too_long_for_a_place_is_refused() -> None:
    places = FairPlaces(1, share=1)
    async with places.of("a", patience=PATIENCE, full="Too many."):
        with pytest.raises(RequestRefused, match=r"Too many\. Please try again later") as refusal:
            async with places.of("b", patience=0.01, full="Too many."):
                raise AssertionError
    assert refusal.value.problem.retry_after == 1.0
    async with places.of("b", patience=PATIENCE, full="Too many."):
        pass


def test_a_request_may_occupy_all_memory_and_several_what_they_leave_free() -> None:
    memory = TenantBytes(100, full="Too many.")
    with memory.holding("a") as first:
        first.add(100)
    with memory.holding("a") as first, memory.holding("a") as second, memory.holding("b") as other:
        first.add(25)
        second.add(25)
        with pytest.raises(RequestRefused):
            second.add(1)
        other.add(49)
        with pytest.raises(RequestRefused):
            other.add(1)
    with memory.holding("a") as first:
        first.add(100)
    assert memory.bytes == 0


def test_requests_without_a_key_share_all_memory() -> None:
    memory = TenantBytes(100, full="Too many.")
    with memory.holding(NO_KEY) as first, memory.holding(NO_KEY) as second:
        first.add(50)
        second.add(50)
