"""Draining: the worker stops claiming, finishes its jobs, and hands over those that take too long."""

import asyncio
import logging
from contextlib import suppress

from redis.exceptions import RedisError

from shared.protocol.queue import JobQueue
from worker.jobs.active_jobs import ActiveJobs
from worker.jobs.consumer import JobConsumer
from worker.jobs.heartbeat import Heartbeat
from worker.jobs.publisher import Publisher
from worker.jobs.registry_record import RegistryRecord
from worker.jobs.releaser import JobReleaser

logger = logging.getLogger(__name__)

_CALL_TIMEOUT = 2.0
"""Seconds that each of the Redis calls of a drain may take."""


class Draining:
    """Drains the worker: for good before it exits, or on command until it is resumed."""

    def __init__(
        self,
        worker: str,
        queue: JobQueue,
        jobs: ActiveJobs,
        consumer: JobConsumer,
        publisher: Publisher,
        record: RegistryRecord,
        heartbeat: Heartbeat,
        releaser: JobReleaser,
        *,
        seconds: float,
    ) -> None:
        """``worker`` is this worker's id. Jobs that run for longer than ``seconds`` are released to other workers."""
        self._worker = worker
        self._queue = queue
        self._jobs = jobs
        self._consumer = consumer
        self._publisher = publisher
        self._record = record
        self._heartbeat = heartbeat
        self._releaser = releaser
        self._seconds = seconds
        self._task: asyncio.Task[None] | None = None
        self._exiting = False

    def start(self) -> None:
        """Begin to drain, until :meth:`resume`. Does nothing while the worker drains."""
        if self._task is None:
            self._record.draining = True
            self._consumer.close()
            self._task = asyncio.create_task(self._drain(), name="drain")

    def resume(self) -> None:
        """Claim again, unless the worker is about to exit."""
        if self._task is None or self._exiting:
            return
        logger.info("claims jobs again")
        self._task.cancel()
        self._task = None
        self._record.draining = False
        self._consumer.open()
        self._heartbeat.trigger()

    async def finish(self) -> None:
        """Drain before the worker exits."""
        self._exiting = True
        self.start()
        assert self._task is not None
        await self._task

    async def _drain(self) -> None:
        logger.info("draining: %d requests have %.0f s to finish", len(self._jobs), self._seconds)
        with suppress(TimeoutError, RedisError, OSError):
            async with asyncio.timeout(_CALL_TIMEOUT):
                await self._heartbeat.renew()
                await self._queue.withdraw(self._worker)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._seconds):
                await self._consumer.drained()
        with suppress(TimeoutError, RedisError, OSError):
            async with asyncio.timeout(_CALL_TIMEOUT):
                await self._publisher.flushed()
                await self._releaser.release()
        # The registry says at once that no job is left.
        self._heartbeat.trigger()
