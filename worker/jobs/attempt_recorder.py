"""Records the spans of attempts when they end."""

import time
from contextlib import suppress
from typing import NamedTuple

from shared.protocol.events import Alternatives, Failed, Finished, Rejected, Started
from shared.protocol.queue import Claim
from shared.redis.records import UNREADABLE
from shared.tracing import Tracing
from shared.tracing.attempt import Attempt, record_attempt
from worker.jobs.active_jobs import ActiveJob, StopCause


class AttemptRecorder:
    """Records the attempts of this worker at jobs whose requests are traced.

    The API replica records those that end because the worker loses its lease, when another attempt starts: this worker
    may have died.
    """

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing

    def record(self, active: ActiveJob, claim: Claim) -> None:
        """Record the attempt ``active``, which ends now."""
        trace = active.job.trace
        if trace is None or not self._tracing.enabled:
            return
        outcome = _outcome_of(active)
        if outcome is None:
            return
        attempt = Attempt(
            job=active.job.id,
            number=claim.attempt,
            claimed_at=active.claimed_at,
            added_at=active.added_at,
            first_output_at=active.first_output_at,
            ended_at=time.monotonic(),
            prompt_tokens=active.started_event.prompt_tokens,
            cached_tokens=active.started_event.cached_tokens,
            resumed_tokens=active.resumed,
            output_tokens=outcome.tokens,
            outcome=outcome.kind,
            failed=outcome.failed,
            links_previous=_follows_traced_attempt(claim),
        )
        record_attempt(self._tracing, trace, attempt)


class _Outcome(NamedTuple):
    kind: str
    failed: bool = False
    tokens: int | None = None


def _outcome_of(active: ActiveJob) -> _Outcome | None:
    """Return how the attempt has ended; None if this worker has lost its lease."""
    match active.terminal_event:
        case Finished(position, reason):
            return _Outcome(reason, tokens=position - active.resumed)
        case Alternatives(items):
            return _Outcome(items[0].reason, tokens=sum(len(item.tokens) for item in items))
        case Failed(problem) | Rejected(problem):
            return _Outcome(problem.kind, failed=True)
    if active.stopped is StopCause.CANCELLED:
        return _Outcome("cancelled")
    cause = active.release_cause
    return _Outcome(cause, failed=cause == "engine_lost") if cause is not None else None


def _follows_traced_attempt(claim: Claim) -> bool:
    """Return whether the attempt before has spans: a lost worker's has them only if it had started."""
    if claim.attempt == 1 or claim.cause != "worker_lost":
        return claim.attempt > 1
    with suppress(*UNREADABLE):
        return any(isinstance(event, Started) and event.attempt == claim.attempt - 1 for event in claim.history())
    return False
