"""Background tasks, and how they end."""

import asyncio
import logging
import traceback
from collections.abc import Callable, Collection, Coroutine
from typing import Any, NoReturn, TypeVar

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")

_PATIENCE = 0.5
"""Seconds after which a task that is still there is cancelled again."""

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
"""Seconds before a failed task runs again: twice as many after each failure."""

_HEALTHY_AFTER = 60.0
"""Seconds after which a task that runs, or still fails in the same way, counts as new."""


async def keep_running(name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> NoReturn:
    """Run the endless ``work`` until cancelled, and start it again after a pause when it fails.

    For background tasks whose end must not end the process. A failure is logged with its traceback; while it repeats at
    the same line, one line a minute says so.
    """
    loop = asyncio.get_running_loop()
    pause, known, logged = _FIRST_PAUSE, "", 0.0
    while True:
        began = loop.time()
        try:
            await work()
            raise RuntimeError("it has returned")
        except Exception as error:
            now = loop.time()
            if now - began > _HEALTHY_AFTER:
                pause = _FIRST_PAUSE
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{type(error).__name__} at {frame.filename}:{frame.lineno}"
            if place != known:
                logger.exception("background task '%s' failed and starts again in %.1f s", name, pause)
                known, logged = place, now
            elif now - logged > _HEALTHY_AFTER:
                logger.error("background task '%s' still fails: %s", name, error)
                logged = now
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


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


class BackgroundTasks:
    """Small tasks that nobody waits for, until their owner ends. What they raise is logged."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def run(self, work: Coroutine[Any, Any, _Result], name: str) -> asyncio.Task[_Result]:
        """Begin ``work``; returns at once."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def finish(self, patience: float) -> None:
        """Wait up to ``patience`` seconds for what is under way, then cancel it."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=patience)
        await cancel_all(self._tasks)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            logger.error("task '%s' failed", task.get_name(), exc_info=error)
