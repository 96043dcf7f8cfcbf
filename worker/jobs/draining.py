"""Returning claimed jobs to the queue after a crash of the engine, and at the end of a drain.

A worker that drains stops claiming, finishes its jobs, and hands over those that take too long.
"""

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass

from redis.exceptions import RedisError

from shared.protocol.events import MoveCause
from shared.protocol.queue import JobQueue
from worker.jobs.active_jobs import ActiveJobs
from worker.jobs.consumer import JobConsumer
from worker.jobs.heartbeat import Heartbeat
from worker.jobs.publisher import Publisher
from worker.jobs.registry_record import RegistryRecord

logger = logging.getLogger(__name__)

_CALL_TIMEOUT = 2.0
"""Seconds that each of the Redis calls of a drain may take."""


async def release_jobs(
    queue: JobQueue, publisher: Publisher, worker: str, jobs: ActiveJobs, *, cause: MoveCause
) -> None:
    """Stop all active jobs of a worker and release their leases. An engine's end is charged to its suspects.

    What they have generated is published before: another attempt would generate it again, and if that is what has ended
    the engine, end the next one too. A failure of the store is logged.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(_CALL_TIMEOUT):
            await publisher.flushed()
    leases = jobs.leases()
    if not leases:
        return
    suspects = jobs.suspects() if cause == "engine_lost" else frozenset()
    jobs.abandon(leases, cause)
    try:
        attempts = [(lease.job, lease.attempt) for lease in leases]
        released = await queue.release(worker, attempts, cause=cause, suspects=suspects)
        level = logging.WARNING if cause == "engine_lost" else logging.INFO
        logger.log(level, "%d jobs released to the queue", released)
    except (RedisError, OSError) as error:
        logger.warning("%d jobs return to the queue when their leases expire: %s", len(leases), error)


@dataclass(slots=True, eq=False)
class Draining:
    """Drains a worker: for good before it exits, or on command until it is resumed."""

    worker: str
    queue: JobQueue
    jobs: ActiveJobs
    consumer: JobConsumer
    publisher: Publisher
    record: RegistryRecord
    heartbeat: Heartbeat
    seconds: float
    """Time after which jobs that still run are released to other workers."""
    _limited: bool = True
    _task: asyncio.Task[None] | None = None
    _exiting: bool = False

    def start(self) -> None:
        """Begin to drain, until :meth:`resume`. Does nothing while the worker drains."""
        if self._task is None:
            self.record.draining = True
            self.consumer.close()
            self._task = asyncio.create_task(self._drain(), name="drain")

    def retire(self) -> None:
        """Drain without a limit of time, for a worker whose jobs no other can continue."""
        self._limited = False
        self.start()

    def resume(self) -> None:
        """Claim again, unless the worker is about to exit."""
        if self._task is None or self._exiting:
            return
        logger.info("claims jobs again")
        self._task.cancel()
        self._task = None
        self._limited = True
        self.record.draining = False
        self.consumer.open()
        self.heartbeat.trigger()

    async def finish(self) -> None:
        """Drain before the worker exits."""
        self._exiting = True
        if not self._limited:
            self._limited = True
            if self._task is not None:
                self._task.cancel()
                self._task = None
        self.start()
        assert self._task is not None
        await self._task

    async def _drain(self) -> None:
        seconds = self.seconds if self._limited else None
        logger.info("draining: %d jobs have %s to finish", len(self.jobs), f"{seconds:.0f} s" if seconds else "time")
        with suppress(TimeoutError, RedisError, OSError):
            async with asyncio.timeout(_CALL_TIMEOUT):
                await self.heartbeat.renew()
                await self.queue.withdraw(self.worker)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.consumer.drained()
        with suppress(TimeoutError, RedisError, OSError):
            async with asyncio.timeout(2 * _CALL_TIMEOUT):
                await release_jobs(self.queue, self.publisher, self.worker, self.jobs, cause="worker_draining")
        # The registry says at once that no job is left.
        self.heartbeat.trigger()
