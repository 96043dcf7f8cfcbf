"""The consumer: claims jobs from the queue while slots are free, and runs each as a task.

Jobs are in arq's format and queue. The rest differs from arq's worker: wake-up messages with a slow poll as a fallback
instead of polling, one Lua script per claim, leases for crash recovery, and no results, because a job's outcome is in
its events.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from redis.exceptions import RedisError

from shared.protocol.queue import RESERVED_MS, Claim, JobQueue, Lease
from shared.redis import outage
from shared.runtime.tasks import cancel_all
from shared.runtime.ticks import next_tick, until
from worker.engine.handle import CurrentEngine
from worker.jobs.active_jobs import ActiveJobs
from worker.jobs.attempt import Attempt
from worker.jobs.gates.batches import may_leave
from worker.jobs.request_cache import RequestCache
from worker.jobs.runner import JobRunner

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class JobConsumer:
    """Claims jobs while slots are free, and owns the tasks that run them.

    While no engine is loaded, nothing is claimed; :meth:`wake` must follow when one is. A batch request in the only
    slot returns to the queue when another request is claimed.
    """

    queue: JobQueue
    worker: str
    """The id of this worker."""
    runner: JobRunner
    jobs: ActiveJobs
    requests: RequestCache
    engine: CurrentEngine
    poll: float
    """Fallback poll interval in seconds."""
    batch_reserve: int | None = 0
    """Number of slots that batch requests leave free; None for an eighth of them."""
    _tasks: dict[asyncio.Task[None], str] = field(default_factory=dict)
    """The running jobs, and the tenant of each that keeps its slot; empty for others."""
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    _wake_timer: asyncio.TimerHandle | None = None
    _closed: bool = False

    def wake(self) -> None:
        """Claim now."""
        self._woken.set()

    def close(self) -> None:
        """Stop claiming. Running jobs continue."""
        self._closed = True

    def open(self) -> None:
        """Claim again."""
        self._closed = False
        self.wake()

    async def run(self) -> None:
        while True:
            try:
                await self._claim()
                if not self._tasks:
                    self.requests.clear()
                outage.store.succeeded("queue")
            except (RedisError, OSError) as error:
                outage.store.failed("queue", error)
                await asyncio.sleep(min(self.poll, 1.0))
            await until(self._woken, next_tick(self.poll))
            self._woken.clear()

    async def drained(self) -> None:
        """Wait until no job is running."""
        while self._tasks:
            await asyncio.wait(self._tasks)
            await asyncio.sleep(0)

    async def stop(self) -> None:
        """Cancel the running jobs. Their leases are not released."""
        await cancel_all(self._tasks)

    async def yield_slot(self) -> None:
        """Leave a slot to a tenant that waits and has fewer slots than its share, if this worker is full.

        The job that leaves is the newest of its tenant, batch and flex requests before others.

        Raises :class:`RedisError` or :class:`OSError` when the store fails.
        """
        if self._closed or len(self._tasks) < self.engine.capacity:
            return
        last_first = sorted(self.jobs.by_number.values(), key=lambda attempt: (attempt.is_patient, attempt.claimed_at))
        offered = {attempt.queued.tenant: attempt.lease for attempt in last_first if self._may_leave(attempt)}
        if offered:
            claims = [(lease.job, lease.attempt) for lease in offered.values()]
            left = await self.queue.yield_slot(self.worker, claims, slots=self.engine.capacity, keepers=self._keepers())
            self.jobs.abandon([lease for lease in offered.values() if lease.job == left], "preempted")

    def _leaving(self) -> Attempt | None:
        """Return the attempt in the only slot, if it leaves it to a request that is no batch request."""
        attempts = self.jobs.by_number.values() if self.engine.capacity == 1 else ()
        return next((attempt for attempt in attempts if attempt.is_batch and self._may_leave(attempt)), None)

    def _may_leave(self, attempt: Attempt) -> bool:
        adjusts = self.engine.info is not None and self.engine.info.adjusts_logits
        return may_leave(attempt, now=time.monotonic(), adjusts_logits=adjusts)

    def _keepers(self) -> list[str]:
        """Return the tenants of the running jobs that keep their slots."""
        return [*filter(None, self._tasks.values())]

    def _slots(self) -> int:
        if self._closed:
            return 0
        return self.engine.capacity + (self._leaving() is not None)

    def _reserve(self, slots: int) -> int:
        """Return how many of ``slots`` batch requests leave free."""
        if slots > self.engine.capacity:
            return 1
        reserve = max(1, slots // 8) if self.batch_reserve is None else self.batch_reserve
        return min(reserve, slots - 1)

    async def _claim(self) -> None:
        # A full worker that is woken claims too: with no free slot, jobs reserved for it are offered to others.
        while slots := self._slots():
            info = self.engine.info
            claims, remaining = await self.queue.claim(
                self.worker,
                used=len(self._tasks),
                slots=slots,
                batch_reserve=self._reserve(slots),
                query_reserve=info.query_reserve if info else 0,
                vocabulary=info.vocabulary if info else "",
                keepers=self._keepers(),
            )
            self._start(claims)
            if len(self._tasks) > self.engine.capacity and (leaving := self._leaving()) is not None:
                await self._release(leaving.lease)
            full = len(self._tasks) >= slots
            if remaining and not claims and not full:
                self._wake_later()
            if full or not claims or not remaining:
                return

    async def _release(self, lease: Lease) -> None:
        """Return a batch request to the queue, for another attempt."""
        self.jobs.abandon([lease], "preempted")
        await self.queue.release(self.worker, [(lease.job, lease.attempt)], cause="preempted")

    def _wake_later(self) -> None:
        """Claim again when the waiting jobs are no longer reserved for other workers."""
        if self._wake_timer is not None:
            self._wake_timer.cancel()
        self._wake_timer = asyncio.get_running_loop().call_later(RESERVED_MS / 1000, self.wake)

    def _start(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            task = asyncio.create_task(self.runner.run(claim), name=f"job {claim.job}")
            self._tasks[task] = claim.keeper
            task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        self.wake()
        if not task.cancelled() and (error := task.exception()):
            logger.error("%s failed in the worker", task.get_name(), exc_info=error)
