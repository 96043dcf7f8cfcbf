"""The reaper: returns jobs with expired leases to the queue."""

import asyncio
import logging

from redis.exceptions import RedisError

from api.chat.queues import JobQueues
from api.models.directory import Directory
from shared.redis import outage
from shared.runtime.logs import summary
from shared.runtime.ticks import next_tick

logger = logging.getLogger(__name__)

_PAUSE = 0.02
"""Minimum interval in seconds between two passes."""


class Reaper:
    """Reaps the queues of all known models."""

    def __init__(self, queues: JobQueues, directory: Directory, *, lease: float) -> None:
        """``lease`` is the duration of workers' leases in seconds."""
        self._queues = queues
        self._directory = directory
        self._lease = lease

    async def run(self) -> None:
        """Return jobs with expired leases to the queue, until cancelled.

        Runs three times per lease, and when the lease that ends first expires.
        """
        soonest = self._lease
        while True:
            await asyncio.sleep(min(next_tick(self._lease / 3), max(soonest, _PAUSE)))
            soonest = self._lease
            try:
                for model in self._directory.fleet.models:
                    expired, end = await self._queues.of(model).reap()
                    if expired:
                        logger.warning("%d requests lost their worker and wait for another: %s", *summary(expired))
                    if end is not None:
                        soonest = min(soonest, end)
                outage.store.succeeded("leases")
            except (RedisError, OSError) as error:
                outage.store.failed("leases", error)
