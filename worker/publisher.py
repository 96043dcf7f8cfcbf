"""Publishing: what the jobs of a step have to say goes to Redis in one script call.

While a call is under way, what comes meanwhile gathers, and goes with the next one; so a slow Redis
makes frames larger, not calls more frequent.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from redis.exceptions import RedisError

from shared.events import TERMINAL, Delta, Event, encode_event
from shared.queue import JobQueue, Publication, StaleClaims

logger = logging.getLogger(__name__)

ORPHAN_GRACE = 5.0
"""Seconds for which an API replica may not listen before its jobs count as orphaned."""

_RETRY_DELAYS = (0.05, 0.1, 0.25, 0.5, 1.0)


class Publisher:
    """Sends events to API replicas and into the journals, in order for each job."""

    def __init__(
        self,
        queue: JobQueue,
        worker: str,
        *,
        load: Callable[[], float],
        on_stale: Callable[[frozenset[str]], None],
        on_orphaned: Callable[[str], None],
    ) -> None:
        """``load`` tells the share of slots in use; ``on_stale`` is called with jobs that other workers hold now,
        ``on_orphaned`` with the id of an API replica that has gone."""
        self._queue = queue
        self._worker = worker
        self._load = load
        self._on_stale = on_stale
        self._on_orphaned = on_orphaned
        self._pending: dict[str, Publication] = {}
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._deaf_since: dict[str, float] = {}

    def post(self, job: str, attempt: int, reply_to: str, *events: Event) -> None:
        """Have ``events`` published; the last one of a job is terminal."""
        pending = self._pending.get(job)
        if pending is None:
            pending = self._pending[job] = Publication(job, attempt, reply_to, [])
            self._wake()
        for event in events:
            pending.events.append(encode_event(event))
            if type(event) is not Delta and isinstance(event, TERMINAL):
                pending.final = True

    def discard(self, job: str, attempt: int, reply_to: str) -> None:
        """End the job in silence: its client has gone."""
        self._pending[job] = Publication(job, attempt, reply_to, [], final=True)
        self._wake()

    def drop(self, job: str) -> None:
        """Forget what waits to be said about a job: it is no longer ours."""
        self._pending.pop(job, None)

    async def flushed(self) -> None:
        """Wait until nothing is left to send."""
        await self._idle.wait()

    async def run(self) -> None:
        """Send until cancelled. Redis' failures are waited out; what was said meanwhile is kept."""
        while True:
            await self._work.wait()
            self._work.clear()
            batch, self._pending = self._pending, {}
            failures = 0
            while batch:
                try:
                    await self._send(batch)
                    batch = {}
                except StaleClaims as stale:
                    batch = {job: pending for job, pending in batch.items() if job not in stale.jobs}
                    for job in stale.jobs:
                        self._pending.pop(job, None)
                    self._on_stale(stale.jobs)
                except (RedisError, OSError) as error:
                    delay = _RETRY_DELAYS[min(failures, len(_RETRY_DELAYS) - 1)]
                    if failures == 0:
                        logger.warning("publishing waits for Redis: %s", error)
                    failures += 1
                    await asyncio.sleep(delay)
            if not self._pending:
                self._idle.set()

    def _wake(self) -> None:
        self._idle.clear()
        self._work.set()

    async def _send(self, batch: dict[str, Publication]) -> None:
        ending = any(publication.final for publication in batch.values())
        receivers = await self._queue.emit(self._worker, batch.values(), load=self._load() if ending else None)
        for replica, count in receivers.items():
            self._note_receivers(replica, count)

    def _note_receivers(self, replica: str, count: int) -> None:
        if count:
            self._deaf_since.pop(replica, None)
            return
        now = time.monotonic()
        if now - self._deaf_since.setdefault(replica, now) >= ORPHAN_GRACE:
            del self._deaf_since[replica]
            self._on_orphaned(replica)
