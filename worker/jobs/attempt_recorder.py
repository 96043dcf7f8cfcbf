"""Records attempts when they end: a line in the log at level debug, a span, and what they have used."""

import logging
import time
from contextlib import suppress
from typing import NamedTuple

from shared.protocol.events import CANCELLED, Alternatives, Delta, Event, Failed, Finished, Rejected, Started
from shared.protocol.queue import Claim
from shared.protocol.usage import UsageCounts
from shared.redis.records import UNREADABLE
from shared.runtime.logs import Fields
from shared.tracing import EndedSpan, Tracing
from worker.jobs.attempt import Attempt

logger = logging.getLogger("worker.job_log")  # this name is documented in docs/logs.md


def record(tracing: Tracing, attempt: Attempt) -> None:
    """Log ``attempt``, which ends now, and record its span if its request is traced and the worker has its lease."""
    outcome = _outcome_of(attempt)
    if logger.isEnabledFor(logging.DEBUG):
        _log(attempt, outcome)
    trace = attempt.queued.trace
    if trace is None or not tracing.enabled or outcome is None:
        return
    reached = (("prompt ready", attempt.added_at), ("first token", attempt.first_output_at))
    started = attempt.started_event
    counts = {
        "gen_ai.usage.input_tokens": started.prompt_tokens,
        "gen_ai.usage.cache_read.input_tokens": started.cached_tokens,
        "gen_ai.usage.output_tokens": outcome.tokens,
        "vinoqueue.resumed_tokens": attempt.resumed,
    }
    tracing.record(
        EndedSpan(
            "attempt",
            attempt.claimed_at,
            time.monotonic(),
            trace,
            {
                "vinoqueue.job": attempt.lease.job,
                "vinoqueue.attempt": attempt.lease.attempt,
                "vinoqueue.outcome": outcome.kind,
                **{name: count for name, count in counts.items() if count},
            },
            events=[(name, at) for name, at in reached if at],
            error=outcome.kind if outcome.failed else "",
        )
    )


class _Outcome(NamedTuple):
    kind: str
    failed: bool = False
    tokens: int | None = None


def _log(attempt: Attempt, outcome: _Outcome | None) -> None:
    now = time.monotonic()
    fields: dict[str, object] = {
        "job": attempt.lease.job,
        "attempt": attempt.lease.attempt,
        "key": attempt.queued.tenant or None,
        "outcome": outcome.kind if outcome is not None else "lease_lost",
        "prompt_tokens": attempt.started_event.prompt_tokens or None,
        "cached_tokens": attempt.started_event.cached_tokens or None,
        "resumed_tokens": attempt.resumed or None,
        "completion_tokens": outcome.tokens if outcome is not None else None,
    }
    if attempt.first_output_at:
        fields["first_output_ms"] = round((attempt.first_output_at - attempt.claimed_at) * 1000)
    fields["total_ms"] = round((now - attempt.claimed_at) * 1000)
    logger.debug("job %s", Fields(fields))


def _outcome_of(attempt: Attempt) -> _Outcome | None:
    """Return how the attempt has ended; None if this worker has lost its lease."""
    if attempt.terminal_event is CANCELLED:
        return _Outcome("cancelled")
    match attempt.terminal_event:
        case Finished(position, reason):
            return _Outcome(reason, tokens=position - attempt.resumed)
        case Alternatives(items):
            return _Outcome(items[0].reason, tokens=sum(len(item.tokens) for item in items))
        case Failed(problem) | Rejected(problem):
            return _Outcome(problem.kind, failed=True)
    cause = attempt.release_cause
    return _Outcome(cause, failed=cause == "engine_lost") if cause is not None else None


def usage_of(attempt: Attempt) -> UsageCounts:
    """Return what the job of an attempt that ends has used, with the tokens of earlier attempts.

    A request with several jobs counts with its first one, and a prompt with the first of its choices.
    """
    request, event = attempt.request, attempt.terminal_event
    if request is None or not request.work.metered:
        return UsageCounts()
    history = _history(attempt.claim)
    # The tokens of the first attempt that started were reported to clients.
    started = next((one for one in history if isinstance(one, Started)), attempt.started_event)
    prompt_tokens = started.prompt_tokens if attempt.added_at or history else 0
    match event:
        case Finished(position):
            tokens = position
            prompt_tokens = event.prompt_tokens or prompt_tokens
        case Alternatives(items):
            tokens = sum(len(item.tokens) for item in items)
            prompt_tokens = event.prompt_tokens or prompt_tokens
        case _:
            published = (one.position + len(one.tokens) for one in history if isinstance(one, Delta))
            tokens = max(attempt.tokens, *published, 0)
    of_prompt = attempt.queued.choice == 0
    return UsageCounts(
        requests=int(attempt.queued.is_first),
        prompt_tokens=prompt_tokens if of_prompt else 0,
        cached_tokens=started.cached_tokens if of_prompt and prompt_tokens else 0,
        completion_tokens=tokens,
        images=len(request.images) if of_prompt and prompt_tokens else 0,
        engine_ms=round((time.monotonic() - attempt.added_at) * 1000) if attempt.added_at else 0,
        errors=int(isinstance(event, Failed | Rejected) and event is not CANCELLED),
    )


def _history(claim: Claim) -> list[Event]:
    with suppress(*UNREADABLE):
        return claim.history()
    return []
