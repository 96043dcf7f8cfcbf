"""The feeder: claims batches that no replica feeds, and feeds a few of them at a time."""

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass

from redis.exceptions import RedisError

from api.batches.run import BatchRun
from api.batches.store import BatchClaim, Superseded
from api.replica import Replica
from shared.redis import outage
from shared.runtime.tasks import cancel_all
from shared.runtime.ticks import next_tick

logger = logging.getLogger(__name__)

_MAX_RUNS = 4
"""Maximum number of batches that a replica feeds at a time. The others are fed by other replicas, or wait."""

_SLICE = 60.0
"""Seconds for which a batch is fed at least while others wait. Without it, a few batches that take long, or whose model
has no worker, would keep all others waiting until they expire."""

_POLL_INTERVAL = 1.0
"""Seconds between two polls for unfinished batches."""


@dataclass(frozen=True, slots=True)
class _Feeding:
    """A batch that is being fed, and since when (monotonic seconds)."""

    run: BatchRun
    since: float


class BatchFeeder:
    """Feeds unfinished batches to the queue, unless the replica is draining.

    Those that wait are fed in turn. An owner with many batches can't keep those of others waiting: batches of the owner
    of most are left first.
    """

    def __init__(self, replica: Replica, *, slice_seconds: float = _SLICE) -> None:
        self._replica = replica
        self._slice = slice_seconds
        self._runs: dict[asyncio.Task[None], _Feeding] = {}

    async def run(self) -> None:
        """Claim and feed batches until cancelled."""
        try:
            while True:
                if self._replica.draining.draining:
                    await cancel_all(set(self._runs))
                else:
                    await self._claim()
                await asyncio.sleep(next_tick(_POLL_INTERVAL))
        finally:
            await cancel_all(set(self._runs))

    async def _claim(self) -> None:
        store = self._replica.batches
        try:
            unfinished = await store.unfinished()
            self._replica.metrics.batches.unfinished(unfinished)
            if unfinished and len(self._runs) < _MAX_RUNS:
                for claim in await store.claim(_MAX_RUNS - len(self._runs)):
                    run = BatchRun(self._replica, claim)
                    task = asyncio.create_task(self._feed(run, claim), name=claim.batch.id)
                    self._runs[task] = _Feeding(run, asyncio.get_running_loop().time())
                    task.add_done_callback(self._runs.pop)
            if unfinished > len(self._runs) == _MAX_RUNS:
                self._leave(await store.waiting())
            outage.store.succeeded("batches")
        except (RedisError, OSError) as error:
            outage.store.failed("batches", error)

    def _leave(self, waiting: int) -> None:
        """Leave a batch if more batches wait than are being left."""
        fed = [feeding for feeding in self._runs.values() if not feeding.run.leaving]
        before = asyncio.get_running_loop().time() - self._slice
        found = [feeding for feeding in fed if feeding.since <= before]
        if found and waiting > len(self._runs) - len(fed):
            of_owner = Counter(feeding.run.owner for feeding in fed)
            max(found, key=lambda feeding: (of_owner[feeding.run.owner], -feeding.since)).run.leave()

    async def _feed(self, run: BatchRun, claim: BatchClaim) -> None:
        try:
            await run.run()
        except Superseded:
            logger.info("batch %s is fed by another replica", claim.batch.id)
        except Exception:
            # The lease expires, and the batch is tried again.
            logger.exception("batch %s failed", claim.batch.id)
