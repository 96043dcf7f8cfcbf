"""Runs one claimed job from its payload to its terminal event."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from shared.protocol.errors import Problem, ProblemKind, RequestRefused, refuse
from shared.protocol.events import CANCELLED
from shared.protocol.queue import Claim, JobQueue
from shared.protocol.request import Job, QueuedJob, Work
from shared.tracing import Tracing
from worker.jobs.active_jobs import ActiveJobs
from worker.jobs.attempt import Attempt, StopCause
from worker.jobs.attempt_recorder import record
from worker.jobs.gates.quarantine import MAX_CRASHES
from worker.jobs.payload import (
    UNREADABLE_JOB,
    check_protocol,
    full_request,
    move_to_dead_letters,
    read_payload,
    summary,
)
from worker.jobs.publisher import Publisher
from worker.jobs.request_cache import RequestCache
from worker.processes.call_process import ServiceUnavailable

logger = logging.getLogger(__name__)

MAX_LOST_WORKERS = 5
"""Number of workers that have disappeared with a job after which it is refused."""


class KindRunner(Protocol):
    """Runs the jobs of one kind of work."""

    async def run(self, attempt: Attempt, job: Job) -> None:
        """Run ``job``, and publish its events up to the terminal one.

        Raises :class:`RequestRefused`, which becomes the terminal event, and
        :class:`~worker.processes.call_process.ServiceUnavailable`.
        """


@dataclass(slots=True, eq=False)
class JobRunner:
    """Runs claimed jobs, each in its own task and by the runner of its kind of work."""

    worker: str
    """The id of this worker."""
    queue: JobQueue
    jobs: ActiveJobs
    publisher: Publisher
    requests: RequestCache
    kinds: Mapping[type[Work], KindRunner]
    """What runs the jobs of each kind of work."""
    tracing: Tracing
    log_poison: bool
    """Log refused jobs in full, including their prompts."""

    async def run(self, claim: Claim) -> None:
        """Run one job to its end. A failure is published as its terminal event.

        A job that is stopped (:class:`~worker.jobs.active_jobs.ActiveJobs`) ends with :class:`asyncio.CancelledError`.
        """
        # 1. The payload is read. One that can't be is set aside for an operator.
        queued: QueuedJob | None = None
        try:
            queued = read_payload(claim)
            check_protocol(queued)
        except UNREADABLE_JOB as error:
            reply_to = queued.reply_to if queued is not None else ""
            await move_to_dead_letters(self.queue, self.worker, claim, error, reply_to=reply_to)
            return
        # 2. From here on, cancellations, a drain and a crash of the engine find the attempt.
        with self.jobs.registered(claim, queued) as attempt:
            try:
                await self._run(attempt)
            except RequestRefused as refusal:
                self.publisher.end(attempt, attempt.failure(refusal.problem))
            except ServiceUnavailable:
                # This worker is about to exit. Its lease expires, and another worker continues the job.
                await attempt.ended.wait()
            except Exception:
                logger.exception("job %s failed in the worker", claim.job)
                problem = Problem(kind=ProblemKind.INTERNAL, message="The worker failed while it served this request.")
                self.publisher.end(attempt, attempt.failure(problem))
            finally:
                # 7. Whatever has ended it, it leaves the engine, and its end is recorded.
                self._clean_up(attempt)
                record(self.tracing, attempt)

    async def _run(self, attempt: Attempt) -> None:
        claim = attempt.claim
        # 3. A cancellation may have overtaken its job.
        if self.jobs.pop_early_cancellation(claim.job):
            self.publisher.end(attempt, CANCELLED)
            return
        # 4. A request that its jobs share is read from the store once.
        try:
            job = await self.requests.complete(attempt.queued)
        except UNREADABLE_JOB as error:
            attempt.terminal_event = await move_to_dead_letters(
                self.queue, self.worker, claim, error, reply_to=attempt.queued.reply_to
            )
            return
        attempt.request = job.request
        # 5. Jobs that crash workers, or that another vocabulary has begun, are refused.
        self._refuse_poison(job, claim)
        if claim.foreign:
            raise refuse(
                ProblemKind.LOST,
                "The response can't be continued: its worker is gone, and all workers that now serve the model have "
                "another vocabulary or chat template. Please send the request again.",
            )
        # 6. The runner of its kind of work takes it to its end.
        if (kind := self.kinds.get(type(job.request.work))) is None:
            raise refuse(ProblemKind.INVALID, f"The model '{job.request.model}' can't do this.", param="model")
        await kind.run(attempt, job)

    def _clean_up(self, attempt: Attempt) -> None:
        """Remove an attempt that was stopped from the engine.

        A job that was cancelled ends. Otherwise another attempt continues it, and what was not published is dropped.
        """
        match attempt.stopped:
            case StopCause.CANCELLED:
                self.publisher.end(attempt, CANCELLED)
            case StopCause.ABANDONED:
                self.publisher.drop(attempt.lease)
            case None:
                return
        if attempt.added_at and attempt.engine is not None:
            attempt.engine.cancel(attempt.number)

    def _refuse_poison(self, job: Job, claim: Claim) -> None:
        """Raise :class:`RequestRefused` for a job that keeps crashing engines or losing workers."""
        if claim.crashes < MAX_CRASHES and claim.lost_workers < MAX_LOST_WORKERS:
            return
        logger.error(
            "poison request %s is refused after %d engine crashes and %d lost workers (%s)",
            job.id,
            claim.crashes,
            claim.lost_workers,
            full_request(job) if self.log_poison else summary(job),
        )
        lost = f"{claim.crashes} engines" if claim.crashes else f"{claim.lost_workers} workers"
        raise refuse(ProblemKind.POISON, f"{lost} failed while they ran this request. It will not be tried again.")
