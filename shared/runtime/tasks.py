"""Background tasks: restarting, cancelling and awaiting them."""

import asyncio
import logging
import traceback
from collections.abc import Callable, Collection, Coroutine
from typing import Any, NoReturn, TypeVar

from shared.runtime.ticks import Backoff

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")

_CANCEL_AGAIN_AFTER = 0.5
"""Seconds after which a task that has not ended is cancelled again."""

_BACKOFF = (0.1, 5.0)
"""First and longest pause in seconds before a failed task is restarted."""

_LOG_EVERY = 60.0
"""Interval in seconds at which a repeated failure is logged."""


async def keep_running(name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> NoReturn:
    """Run the endless ``work`` until cancelled, and restart it with exponential backoff when it fails.

    For background tasks whose failure must not end the process. A failure is logged with its traceback. While it
    repeats at the same source line, it is logged once per minute without one.
    """
    loop = asyncio.get_running_loop()
    backoff, last_place, last_logged = Backoff(*_BACKOFF), "", 0.0
    while True:
        started = loop.time()
        try:
            await work()
            raise RuntimeError("it has returned")
        except Exception as error:
            now = loop.time()
            pause = backoff.pause(now - started)
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{type(error).__name__} at {frame.filename}:{frame.lineno}"
            if place != last_place:
                logger.exception("background task '%s' failed and starts again in %.1f s", name, pause)
                last_place, last_logged = place, now
            elif now - last_logged > _LOG_EVERY:
                logger.error("background task '%s' still fails: %s", name, error)
                last_logged = now
        await asyncio.sleep(pause)


async def cancel_all(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel ``tasks`` and wait until all have ended; their failures are not raised.

    Cancellations are repeated, because one that coincides with the end of ``asyncio.wait_for`` gets lost before
    Python 3.12.
    """
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=_CANCEL_AGAIN_AFTER)
    await asyncio.gather(*tasks, return_exceptions=True)


class BackgroundTasks:
    """Short tasks that no caller awaits. Their exceptions are logged, and their owner waits for them at its end."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def run(self, work: Coroutine[Any, Any, _Result], name: str) -> asyncio.Task[_Result]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def finish(self, patience: float) -> None:
        """Wait up to ``patience`` seconds for the running tasks, then cancel them."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=patience)
        await cancel_all(self._tasks)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            logger.error("task '%s' failed", task.get_name(), exc_info=error)
