"""Records the spans of attempts when they end."""

import time
from contextlib import suppress
from typing import NamedTuple

from shared.protocol.events import Alternatives, Failed, Finished, Rejected, Started
from shared.protocol.queue import Claim
from shared.redis.records import UNREADABLE
from shared.tracing import Tracing
from shared.tracing.attempt import Attempt, record_attempt
from worker.active_jobs import ActiveJob, Stop


class AttemptRecorder:
    """Records the attempts of this worker at jobs whose requests are traced.

    Those that end because the worker loses its lease are left to the API replica, which records them when the job goes
    on elsewhere: this worker may be gone by then.
    """

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing

    def record(self, active: ActiveJob, claim: Claim) -> None:
        """Record the attempt ``active``, which ends now."""
        trace = active.job.trace
        if trace is None or not self._tracing.enabled:
            return
        end = _end_of(active)
        if end is None:
            return
        attempt = Attempt(
            job=active.job.id,
            number=claim.attempt,
            claimed=active.claimed,
            added=active.added,
            first=active.first_output,
            ended=time.monotonic(),
            prompt_tokens=active.opening.prompt_tokens,
            cached_tokens=active.opening.cached_tokens,
            resumed_tokens=active.resumed,
            output_tokens=end.tokens,
            outcome=end.outcome,
            failed=end.failed,
            follows=_follows(claim),
        )
        record_attempt(self._tracing, trace, attempt)


class _End(NamedTuple):
    outcome: str
    failed: bool = False
    tokens: int | None = None


def _end_of(active: ActiveJob) -> _End | None:
    """Return how the attempt has ended; None if this worker has lost its lease."""
    match active.ending:
        case Finished(position, reason):
            return _End(reason, tokens=position - active.resumed)
        case Alternatives(items):
            return _End(items[0].reason, tokens=sum(len(item.tokens) for item in items))
        case Failed(problem) | Rejected(problem):
            return _End(problem.kind, failed=True)
    if active.stopped is Stop.CANCELLED:
        return _End("cancelled")
    return _End(active.move, failed=active.move == "engine_lost") if active.move is not None else None


def _follows(claim: Claim) -> bool:
    """Return whether the attempt before has spans: a lost worker's has them only if it had started."""
    if claim.attempt == 1 or claim.cause != "worker_lost":
        return claim.attempt > 1
    with suppress(*UNREADABLE):
        return any(isinstance(event, Started) and event.attempt == claim.attempt - 1 for event in claim.history())
    return False
