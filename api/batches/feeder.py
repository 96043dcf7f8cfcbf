"""The feeder: claims batches that no replica feeds, and feeds a few of them at a time."""

import asyncio
import logging

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

_POLL_INTERVAL = 1.0
"""Seconds between two polls for unfinished batches."""


class BatchFeeder:
    """Feeds unfinished batches to the queue, unless the replica is draining."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._runs: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Claim and feed batches until cancelled."""
        try:
            while True:
                if self._replica.draining.draining:
                    await cancel_all(self._runs)
                else:
                    await self._claim()
                await asyncio.sleep(next_tick(_POLL_INTERVAL))
        finally:
            await cancel_all(self._runs)

    async def _claim(self) -> None:
        store = self._replica.batches
        try:
            unfinished = await store.unfinished()
            self._replica.metrics.batches.unfinished(unfinished)
            if unfinished and len(self._runs) < _MAX_RUNS:
                for claim in await store.claim(_MAX_RUNS - len(self._runs)):
                    task = asyncio.create_task(self._feed(claim), name=claim.batch.id)
                    self._runs.add(task)
                    task.add_done_callback(self._runs.discard)
            outage.store.succeeded("batches")
        except (RedisError, OSError) as error:
            outage.store.failed("batches", error)

    async def _feed(self, claim: BatchClaim) -> None:
        try:
            await BatchRun(self._replica, claim).run()
        except Superseded:
            logger.info("batch %s is fed by another replica", claim.batch.id)
        except Exception:
            # The lease expires, and the batch is tried again.
            logger.exception("batch %s failed", claim.batch.id)
