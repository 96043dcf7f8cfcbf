"""Registry of the jobs that hold a slot of this worker, by id and by sequence number. It also stops them."""

import asyncio
import itertools
import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import cast

import msgspec

from shared.protocol.errors import Problem
from shared.protocol.events import Event, Failed, MoveCause, Rejected, Started, encode_event
from shared.protocol.queue import Claim, Lease
from shared.protocol.request import Job
from worker.engine.handle import EngineProcess

logger = logging.getLogger(__name__)

_CANCELLATION_TTL = 30.0
"""Seconds for which the cancellation of an unknown job is remembered."""


_NOT_STARTED = Started(worker="", prompt_tokens=0, fingerprint="")


class StopCause(Enum):
    """Why a job was stopped before its end."""

    CANCELLED = auto()
    """Its client has disconnected, or has cancelled it."""
    ABANDONED = auto()
    """This worker lost its lease or returns it. Another attempt continues the job."""


@dataclass(slots=True, eq=False)
class ActiveJob:
    """One attempt at a job, and its progress in this worker. ``number`` names its sequence in the engine process."""

    job: Job
    lease: Lease
    number: int
    task: asyncio.Task[None]
    """The task that runs the job."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when its terminal event has been handed to the publisher."""
    engine: EngineProcess | None = None
    """The engine process that has its sequence."""
    started_event: Started = _NOT_STARTED
    """Its started event, published with the first output."""
    claimed_at: float = field(default_factory=time.monotonic)
    """When it was claimed (monotonic seconds)."""
    added_at: float = 0.0
    """When the engine got its sequence."""
    first_output_at: float = 0.0
    """When its first output arrived."""
    terminal_event: Event | None = None
    """Its terminal event."""
    resumed: int = 0
    """Number of tokens from earlier attempts."""
    started: bool = False
    """Whether its started event was published."""
    preemptible: bool = False
    """Whether other requests may preempt it."""
    quarantined: bool = False
    stopped: StopCause | None = None
    release_cause: MoveCause | None = None
    """Why this worker released it; None if it did not."""

    def encode_started(self, cached_tokens: int) -> bytes:
        """Complete and encode its started event, at its first output. ``cached_tokens`` of its prompt were cached."""
        self.first_output_at = time.monotonic()
        self.started_event = msgspec.structs.replace(
            self.started_event,
            cached_tokens=cached_tokens,
            prompt_seconds=round(self.added_at - self.claimed_at, 6),
            prefill_seconds=round(self.first_output_at - self.added_at, 6),
        )
        return encode_event(self.started_event)

    def failure(self, problem: Problem) -> Failed | Rejected:
        """Return the job's terminal event if it ends with ``problem``."""
        return Failed(problem) if self.started else Rejected(problem)


class ActiveJobs:
    """Registry of the active jobs.

    Stopping a job cancels the task that runs it, in any phase. The task cleans up after itself (see
    :class:`worker.jobs.runner.JobRunner`).
    """

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._by_id: dict[str, ActiveJob] = {}
        self.by_number: dict[int, ActiveJob] = {}
        """Active jobs by sequence number. Outputs of other sequences belong to stopped jobs."""
        self._reading: dict[Lease, asyncio.Task[None]] = {}
        """The tasks of claimed jobs whose requests are being read from the store."""
        self._cancelled_early: dict[str, float] = {}
        self.total = 0
        """Number of jobs that have been active since the start."""

    def __len__(self) -> int:
        return len(self._by_id) + len(self._reading)

    @contextmanager
    def reading(self, claim: Claim, reply_to: str) -> Iterator[None]:
        """Hold the lease of a claimed job, whose request the current task reads, until the end of the block."""
        lease = Lease(claim.job, claim.attempt, reply_to)
        self._reading[lease] = cast("asyncio.Task[None]", asyncio.current_task())
        try:
            yield
        finally:
            self._reading.pop(lease, None)

    @contextmanager
    def running(self, claim: Claim, job: Job) -> Iterator[ActiveJob]:
        """Register a claimed job that the current task runs, until the end of the block."""
        if job.id in self._by_id:
            # The lease of the earlier attempt has expired, and this worker has claimed the job again.
            self.abandon([self._by_id[job.id].lease])
        task = cast("asyncio.Task[None]", asyncio.current_task())
        active = ActiveJob(job, Lease(job.id, claim.attempt, job.reply_to), next(self._numbers), task)
        self._by_id[job.id] = self.by_number[active.number] = active
        self.total += 1
        try:
            yield active
        finally:
            self._remove(active)

    def leases(self) -> list[Lease]:
        """Return the leases that this worker holds."""
        return [*self._reading, *(active.lease for active in self._by_id.values())]

    def in_engine(self) -> list[str]:
        """Return the ids of the jobs whose sequences an engine has."""
        return [job for job, active in self._by_id.items() if active.engine is not None]

    def cancel(self, job: str) -> None:
        """Stop a job whose client has disconnected. An unknown job is remembered: its claim may still arrive."""
        active = self._by_id.get(job)
        if active is not None:
            self._stop(active, StopCause.CANCELLED)
        else:
            self._remember_cancelled(job)

    def cancel_replica(self, replica: str) -> None:
        """Stop the jobs of an API replica that has gone, except those whose responses are stored."""
        orphans = [
            active for active in self._by_id.values() if active.job.reply_to == replica and not active.job.request.store
        ]
        if orphans:
            logger.warning("API replica %s is gone: cancelling %d of its requests", replica, len(orphans))
        for active in orphans:
            self._stop(active, StopCause.CANCELLED)

    def pop_early_cancellation(self, job: str) -> bool:
        """Return whether ``job`` was cancelled before it was registered, and forget that."""
        return self._cancelled_early.pop(job, None) is not None

    def abandon(self, leases: Iterable[Lease], cause: MoveCause | None = None) -> None:
        """Stop the jobs with these leases, which this worker has lost, or releases because of ``cause``."""
        for lease in leases:
            if reading := self._reading.pop(lease, None):
                reading.cancel()
                continue
            active = self._by_id.get(lease.job)
            if active is not None and active.lease is lease:
                active.release_cause = cause
                self._stop(active, StopCause.ABANDONED)

    def _stop(self, active: ActiveJob, reason: StopCause) -> None:
        active.stopped = reason
        self._remove(active)
        active.task.cancel()

    def _remove(self, active: ActiveJob) -> None:
        self.by_number.pop(active.number, None)
        if self._by_id.get(active.job.id) is active:
            del self._by_id[active.job.id]

    def _remember_cancelled(self, job: str) -> None:
        now = time.monotonic()
        self._cancelled_early = {
            known: at for known, at in self._cancelled_early.items() if now - at < _CANCELLATION_TTL
        }
        self._cancelled_early[job] = now
