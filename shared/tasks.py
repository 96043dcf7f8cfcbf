"""Background tasks, and how they end."""

import asyncio
from collections.abc import Collection, Coroutine
from typing import Any

_PATIENCE = 0.5
"""Seconds after which a task that is still there is cancelled again."""


async def cancel_all(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel ``tasks`` and wait until all have ended; their failures are not raised.

    A cancellation that meets the end of a time-out inside a library can get lost (asyncio.wait_for before
    Python 3.12 does that), so it is repeated.
    """
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=_PATIENCE)
    await asyncio.gather(*tasks, return_exceptions=True)


class Errands:
    """Small tasks that nobody waits for, until their owner ends."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Begin ``work``; returns at once."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self, patience: float) -> None:
        """Wait up to ``patience`` seconds for what is under way, then cancel it."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=patience)
        await cancel_all(self._tasks)
