"""Ending background tasks."""

import asyncio
from collections.abc import Collection
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
