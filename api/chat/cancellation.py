"""Cancellation of jobs in the background."""

import asyncio
import logging
from collections.abc import Sequence

from redis.exceptions import RedisError

from api.chat.queues import JobQueues
from shared.runtime.tasks import BackgroundTasks

logger = logging.getLogger(__name__)

_RETRY = 1.0
"""Seconds between two attempts while the store is unreachable."""


class JobCancellation:
    """Cancels jobs, which frees their slots."""

    def __init__(self, queues: JobQueues, tasks: BackgroundTasks) -> None:
        self._queues = queues
        self._tasks = tasks

    def cancel(self, model: str, jobs: Sequence[str]) -> asyncio.Task[frozenset[str]]:
        """Cancel the unfinished ``jobs``; the task returns those that workers had claimed."""
        return self._tasks.run(self._cancel(model, jobs), "cancel jobs")

    async def _cancel(self, model: str, jobs: Sequence[str]) -> frozenset[str]:
        """Cancel jobs, retrying while the store is unreachable: otherwise workers would continue to compute."""
        while True:
            try:
                return await self._queues.of(model).cancel(jobs)
            except (RedisError, OSError) as error:
                logger.debug("jobs %s not cancelled, will retry: %s", jobs, error)
                await asyncio.sleep(_RETRY)
