"""Waiting for a condition that has no event."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable

PATIENCE = 240.0
"""Upper limit in seconds for everything that tests wait for: it ends a test that hangs, and measures nothing."""


def wait_until(condition: Callable[[], object], what: str, *, details: Callable[[], str] = str) -> None:
    """Block until ``condition`` is true. Fails with ``details`` (such as logs) when it does not become true."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"timed out waiting for {what}\n{details()}")
        time.sleep(0.02)


async def eventually(
    condition: Callable[[], Awaitable[object] | object], what: str = "", *, details: Callable[[], str] = str
) -> None:
    """As :func:`wait_until`, without blocking the event loop. ``condition`` may be a coroutine function."""
    deadline = time.monotonic() + PATIENCE
    while True:
        reached = condition()
        if await reached if inspect.isawaitable(reached) else reached:
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"timed out waiting for {what or condition}\n{details()}")
        await asyncio.sleep(0.005)
