"""The worker's heartbeat: renews its registry record and leases, and reaps expired leases of other workers."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from redis.asyncio import Redis

from shared.protocol.queue import JobQueue
from shared.protocol.registry import WorkerInfo, announce, withdraw
from shared.redis import outage
from shared.runtime.health_file import HealthFile
from shared.runtime.logs import summary
from shared.runtime.ticks import next_tick, until
from worker.jobs.active_jobs import ActiveJobs
from worker.jobs.registry_record import RegistryRecord

logger = logging.getLogger(__name__)


async def _nothing(*_: object) -> None:
    """For a worker that serves nothing."""


@dataclass(slots=True, eq=False)
class Heartbeat:
    """Renews the worker's registry record and leases, and returns jobs to the queue: those with expired leases, and one
    whose slot another tenant gets."""

    queue: JobQueue
    worker: str
    """The id of this worker."""
    jobs: ActiveJobs
    record: RegistryRecord
    lease: float
    """Duration of a lease in seconds."""
    health: HealthFile = field(default_factory=HealthFile)
    yield_slot: Callable[[], Awaitable[None]] = _nothing
    """Leaves a slot to a tenant below its share (:meth:`~worker.jobs.consumer.JobConsumer.yield_slot`)."""
    cancel_orphans: Callable[[Redis], Awaitable[None]] = _nothing
    """Cancels the jobs of API replicas that have gone (:meth:`~worker.jobs.publisher.Publisher.cancel_orphans`)."""
    _triggered: asyncio.Event = field(default_factory=asyncio.Event)
    _status: str = ""
    """The status that the registry has."""

    async def run(self) -> None:
        """Renew three times per lease duration until cancelled. An unreachable store is retried at the next beat."""
        while True:
            with outage.store.reported("heartbeat"):
                await self.renew()
            await until(self._triggered, next_tick(self.lease / 3))
            self._triggered.clear()

    def trigger(self) -> None:
        """Renew now: the registry record has changed."""
        self._triggered.set()

    async def renew(self) -> None:
        """Renew the leases and the registry record, stop jobs whose lease was lost, reap expired leases, and
        share slots.

        Leases come first: without them, other workers start the same jobs.

        Raises :class:`RedisError` or :class:`OSError` when the store fails.
        """
        leases, info = self.jobs.leases(), self.record.current()
        lost = set(await self.queue.renew(self.worker, [(lease.job, lease.attempt) for lease in leases], info))
        # Jobs that have ended in the meantime are not lost.
        held = set(self.jobs.leases())
        for lease in leases:
            if lease.job in lost and lease in held:
                logger.info("job %s: lease lost, stopping it here", lease.job)
                self.jobs.abandon([lease])
        await announce(self.queue.redis, info, lease=self.lease)
        self.health.write(info.status)
        if info.status == "serving" != self._status:
            logger.info("worker %s serves %s on %s", info.id, ", ".join((info.model, *info.aliases)), info.device)
        self._status = info.status
        requeued, _ = await self.queue.reap()
        if requeued:
            logger.warning("%d jobs lost their worker and wait for another: %s", *summary(requeued))
        await self.cancel_orphans(self.queue.redis)
        await self.yield_slot()

    async def withdraw(self) -> None:
        """Remove the registry record, and the worker from the wake-up list."""
        await asyncio.gather(withdraw(self.queue.redis, WorkerInfo, self.worker), self.queue.withdraw(self.worker))
