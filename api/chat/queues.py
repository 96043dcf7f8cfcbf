"""The job queues of all models, as this replica uses them."""

import asyncio
import logging
from collections.abc import Iterator

from arq.connections import ArqRedis

from api.models.directory import Directory
from shared.protocol.queue import JobQueue, Route
from shared.redis import outage
from shared.runtime.logs import summary
from shared.runtime.ticks import next_tick

logger = logging.getLogger(__name__)

_PAUSE = 0.02
"""Minimum interval in seconds between two passes."""


class JobQueues:
    """Returns the queue of each model, and counts how this replica's jobs were routed."""

    def __init__(self, redis: ArqRedis, *, prefix_routing: bool, lease: float) -> None:
        """``lease`` is the duration of workers' leases in seconds."""
        self._redis = redis
        self._prefix_routing = prefix_routing
        self._lease = lease
        self._queues: dict[str, JobQueue] = {}

    def of(self, model: str) -> JobQueue:
        queue = self._queues.get(model)
        if queue is None:
            queue = self._queues[model] = JobQueue(
                self._redis, model, prefix_routing=self._prefix_routing, lease_ms=int(self._lease * 1000)
            )
        return queue

    def routed(self) -> Iterator[tuple[str, Route, int]]:
        """Yield the number of jobs with long prompts that this replica enqueued, per model and route."""
        for model, queue in self._queues.items():
            for route, count in queue.routed.items():
                yield model, route, count

    async def reap(self, directory: Directory) -> None:
        """Return jobs of known models with expired leases to the queue, until cancelled.

        Runs three times per lease, and when the lease that ends first expires.
        """
        soonest = self._lease
        while True:
            await asyncio.sleep(min(next_tick(self._lease / 3), max(soonest, _PAUSE)))
            soonest = self._lease
            with outage.store.reported("leases"):
                for model in directory.fleet.models:
                    expired, end = await self.of(model).reap()
                    if expired:
                        logger.warning("%d jobs lost their worker and wait for another: %s", *summary(expired))
                    if end is not None:
                        soonest = min(soonest, end)
