"""Returns claimed jobs to the queue, where another worker or the next engine continues them."""

import logging

from redis.exceptions import RedisError

from shared.protocol.events import MoveCause
from shared.protocol.queue import JobQueue
from worker.jobs.active_jobs import ActiveJobs

logger = logging.getLogger(__name__)


class JobReleaser:
    """Stops all active jobs and releases their leases."""

    def __init__(self, queue: JobQueue, worker: str, jobs: ActiveJobs) -> None:
        """``worker`` is this worker's id."""
        self._queue = queue
        self._worker = worker
        self._jobs = jobs

    async def release(self) -> None:
        """Release all jobs at the end of a drain. Raises :class:`RedisError` or :class:`OSError` if the store fails."""
        if len(self._jobs):
            released = await self._release("worker_draining", frozenset())
            logger.info("%d requests released to other workers", released)

    async def release_after_crash(self) -> None:
        """Release all jobs of an engine that has ended, and charge its suspects. Failures are logged."""
        count = len(self._jobs)
        if not count:
            return
        try:
            released = await self._release("engine_lost", self._jobs.suspects())
            logger.warning("%d requests released to the queue", released)
        except (RedisError, OSError) as error:
            logger.warning("%d requests return to the queue when their leases expire: %s", count, error)

    async def _release(self, cause: MoveCause, suspects: frozenset[str]) -> int:
        leases = self._jobs.leases()
        self._jobs.abandon(leases, cause)
        return await self._queue.release(
            self._worker, [(lease.job, lease.attempt) for lease in leases], cause=cause, suspects=suspects
        )
