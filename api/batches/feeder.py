"""The feeder: claims batches that no replica feeds, and feeds a few of them at a time."""

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass

from api.batches.request import BatchServices
from api.batches.run import BatchRun
from api.batches.store import BatchClaim, Superseded
from shared.redis import outage
from shared.runtime.tasks import cancel_all
from shared.runtime.ticks import next_tick

logger = logging.getLogger(__name__)

_MAX_RUNS = 4
"""Maximum number of batches that a replica feeds at a time. The others are fed by other replicas, or wait."""

_TIME_SLICE = 60.0
"""Minimum time in seconds for which a batch is fed while others wait. Without time slices, a few slow batches, or
batches of a model without workers, would keep all others waiting until they expire."""

_POLL_INTERVAL = 1.0
"""Seconds between two polls for unfinished batches."""


@dataclass(frozen=True, slots=True)
class _Feeding:
    """A batch that is being fed, and when that started (event loop time)."""

    run: BatchRun
    since: float


class BatchFeeder:
    """Feeds unfinished batches to the queue, unless the replica is draining.

    If more batches wait than it can feed, it feeds them round-robin. Batches of the owner with the most yield first, so
    an owner with many batches can't keep those of others waiting.

    ``time_slice`` is the minimum time in seconds until a batch yields.
    """

    def __init__(self, services: BatchServices, *, time_slice: float = _TIME_SLICE) -> None:
        self._services = services
        self._time_slice = time_slice
        self._runs: dict[asyncio.Task[None], _Feeding] = {}

    async def run(self) -> None:
        try:
            while True:
                if self._services.chat.streams.draining:
                    await cancel_all(set(self._runs))
                else:
                    await self._claim()
                await asyncio.sleep(next_tick(_POLL_INTERVAL))
        finally:
            await cancel_all(set(self._runs))

    async def _claim(self) -> None:
        store = self._services.store
        with outage.store.reported("batches"):
            unfinished = await store.unfinished()
            self._services.metrics.unfinished(unfinished)
            if unfinished and len(self._runs) < _MAX_RUNS:
                for claim in await store.claim(_MAX_RUNS - len(self._runs)):
                    run = BatchRun(self._services, claim)
                    task = asyncio.create_task(self._feed(run, claim), name=claim.batch.id)
                    self._runs[task] = _Feeding(run, asyncio.get_running_loop().time())
                    task.add_done_callback(self._runs.pop)
            if unfinished > len(self._runs) == _MAX_RUNS:
                self._yield_one(await store.waiting())

    def _yield_one(self, waiting: int) -> None:
        """Have a batch yield if more batches wait than are yielding."""
        fed = [feeding for feeding in self._runs.values() if not feeding.run.yielding]
        before = asyncio.get_running_loop().time() - self._time_slice
        candidates = [feeding for feeding in fed if feeding.since <= before]
        if candidates and waiting > len(self._runs) - len(fed):
            of_owner = Counter(feeding.run.owner for feeding in fed)
            max(candidates, key=lambda feeding: (of_owner[feeding.run.owner], -feeding.since)).run.request_yield()

    async def _feed(self, run: BatchRun, claim: BatchClaim) -> None:
        try:
            await run.run()
        except Superseded:
            logger.info("batch %s is fed by another replica", claim.batch.id)
        except Exception:
            # The lease expires, and the batch is tried again. Its first failure is logged.
            level = logging.ERROR if run.failures <= 1 else logging.DEBUG
            logger.log(level, "batch %s failed", claim.batch.id, exc_info=True)
