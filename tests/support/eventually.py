"""Waiting for a condition that has no event."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable

PATIENCE = 240.0
"""Upper limit in seconds for everything that tests wait for: it ends a test that hangs, and measures nothing."""

_SHORTEST, _GROWTH, _LONGEST = 0.005, 1.2, 0.1
"""The pause in seconds between two looks at a condition grows: who waits for long leaves the CPUs to what is waited
for."""


def wait_until(
    condition: Callable[[], object], what: str, *, details: Callable[[], str] = str, patience: float = PATIENCE
) -> None:
    """Block until ``condition`` is true. Fails with ``details`` (such as logs) when it does not become true within
    ``patience`` seconds."""
    deadline, pause = time.monotonic() + patience, _SHORTEST
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"timed out waiting for {what}\n{details()}")
        time.sleep(pause)
        pause = min(_GROWTH * pause, _LONGEST)


async def eventually(
    condition: Callable[[], Awaitable[object] | object], what: str = "", *, details: Callable[[], str] = str
) -> None:
    """As :func:`wait_until`, without blocking the event loop. ``condition`` may be a coroutine function."""
    deadline, pause = time.monotonic() + PATIENCE, _SHORTEST
    while True:
        reached = condition()
        if await reached if inspect.isawaitable(reached) else reached:
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"timed out waiting for {what or condition}\n{details()}")
        await asyncio.sleep(pause)
        pause = min(_GROWTH * pause, _LONGEST)
