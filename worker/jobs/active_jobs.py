"""The table of the attempts that hold a slot of this worker. It stops them, and tells whom to blame for a crash."""

import asyncio
import itertools
import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import cast

from shared.protocol.events import MoveCause
from shared.protocol.queue import Claim, Lease
from shared.protocol.request import QueuedJob
from worker.jobs.attempt import Attempt, StopCause

logger = logging.getLogger(__name__)

_CANCELLATION_TTL = 30.0
"""Seconds for which the cancellation of an unknown job is remembered."""


class ActiveJobs:
    """The attempts of this worker, from their claims to their ends.

    Stopping an attempt cancels the task that runs it, in any phase. The task cleans up after itself (see
    :class:`worker.jobs.runner.JobRunner`).
    """

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._by_id: dict[str, Attempt] = {}
        self.by_number: dict[int, Attempt] = {}
        """Attempts by sequence number. Outputs of other sequences belong to stopped attempts."""
        self._cancelled_early: dict[str, float] = {}
        """Unknown jobs that were cancelled, and when (monotonic seconds): their claims may still arrive."""
        self.total = 0
        """Number of attempts since the start."""

    def __len__(self) -> int:
        return len(self._by_id)

    @contextmanager
    def registered(self, claim: Claim, queued: QueuedJob) -> Iterator[Attempt]:
        """Register the attempt that the current task makes at a claimed job, until the end of the block."""
        if (earlier := self._by_id.get(claim.job)) is not None:
            # The lease of the earlier attempt has expired, and this worker has claimed the job again.
            self.abandon([earlier.lease])
        task = cast("asyncio.Task[None]", asyncio.current_task())
        attempt = Attempt(claim, queued, next(self._numbers), task)
        self._by_id[claim.job] = self.by_number[attempt.number] = attempt
        self.total += 1
        try:
            yield attempt
        finally:
            self._remove(attempt)

    def leases(self) -> list[Lease]:
        """Return the leases that this worker holds."""
        return [attempt.lease for attempt in self._by_id.values()]

    def suspects(self) -> frozenset[str]:
        """Return the ids of the jobs to suspect for a crash of the engine: all that it had, or of them the suspect in
        quarantine alone."""
        running = [attempt for attempt in self._by_id.values() if attempt.added_at]
        suspected = [attempt for attempt in running if attempt.in_quarantine] or running
        return frozenset(attempt.lease.job for attempt in suspected)

    def cancel(self, job: str) -> None:
        """Stop a job whose client has disconnected. An unknown job is remembered: its claim may still arrive."""
        attempt = self._by_id.get(job)
        if attempt is not None:
            self._stop(attempt, StopCause.CANCELLED)
        else:
            self._remember_cancelled(job)

    def cancel_replica(self, replica: str) -> None:
        """Stop the jobs of an API replica that has gone, except those whose responses are stored."""
        orphans = [
            attempt
            for attempt in self._by_id.values()
            if attempt.queued.reply_to == replica and attempt.request is not None and not attempt.request.store
        ]
        if orphans:
            logger.warning("API replica %s is gone: cancelling %d of its jobs", replica, len(orphans))
        for attempt in orphans:
            self._stop(attempt, StopCause.CANCELLED)

    def pop_early_cancellation(self, job: str) -> bool:
        """Return whether ``job`` was cancelled before it was registered, and forget that."""
        return self._cancelled_early.pop(job, None) is not None

    def abandon(self, leases: Iterable[Lease], cause: MoveCause | None = None) -> None:
        """Stop the attempts with these leases, which this worker has lost, or releases because of ``cause``."""
        for lease in leases:
            attempt = self._by_id.get(lease.job)
            if attempt is not None and attempt.lease is lease:
                attempt.release_cause = cause
                self._stop(attempt, StopCause.ABANDONED)

    def _stop(self, attempt: Attempt, cause: StopCause) -> None:
        attempt.stopped = cause
        self._remove(attempt)
        attempt.task.cancel()

    def _remove(self, attempt: Attempt) -> None:
        self.by_number.pop(attempt.number, None)
        if self._by_id.get(attempt.lease.job) is attempt:
            del self._by_id[attempt.lease.job]

    def _remember_cancelled(self, job: str) -> None:
        now = time.monotonic()
        self._cancelled_early = {
            known: at for known, at in self._cancelled_early.items() if now - at < _CANCELLATION_TTL
        }
        self._cancelled_early[job] = now
