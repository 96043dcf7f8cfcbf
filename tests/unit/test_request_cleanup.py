"""The end of an HTTP exchange: what was acquired is released, even where a cancellation gets lost."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from api.request_cleanup import RequestCleanup, RequestCleanupMiddleware

SCOPE = {"type": "http"}
_KEY = "vinoqueue.lifetime"


async def gone() -> dict[str, str]:
    return {"type": "http.disconnect"}


async def send(message: Any) -> None:
    del message


async def test_what_was_acquired_is_released_when_the_handler_fails() -> None:
    released: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        life: RequestCleanup = scope[_KEY]
        life.callback(released.append, "answer")
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await RequestCleanupMiddleware(app)(dict(SCOPE), gone, send)
    assert released == ["answer"]


async def test_the_last_acquired_is_released_first_and_all_are_whatever_fails() -> None:
    released: list[str] = []

    def fail() -> None:
        raise ValueError("broken")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        life: RequestCleanup = scope[_KEY]
        life.callback(released.append, "answer")
        life.callback(fail)
        life.callback(released.append, "count")

    with pytest.raises(ValueError, match="broken"):
        await RequestCleanupMiddleware(app)(dict(SCOPE), gone, send)
    assert released == ["count", "answer"]


async def test_a_handler_that_goes_on_without_its_client_is_ended() -> None:
    released: list[str] = []
    lost: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope[_KEY].callback(released.append, "answer")
        assert (await receive())["type"] == "http.disconnect"
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
        lost.append("a cancellation")
        await asyncio.sleep(3600)

    await RequestCleanupMiddleware(app)(dict(SCOPE), gone, send)
    assert lost == ["a cancellation"]
    assert released == ["answer"]


async def test_a_cancellation_from_elsewhere_is_passed_on() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(3600)

    task = asyncio.create_task(RequestCleanupMiddleware(app)(dict(SCOPE), gone, send))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
