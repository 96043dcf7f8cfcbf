"""The spans of an attempt: prompt, prefill and decode.

They are children of the request's span. The worker records them when the attempt ends. If the worker was lost, the API
replica records those that it knows. The id of an attempt's first span is computed
from the job and the attempt, so that the next attempt, in another process, can have a link to it.
"""

from dataclasses import dataclass
from hashlib import blake2b

from shared.protocol.request import TraceContext
from shared.tracing.interface import EndedSpan, Tracing

_SPAN_ID = 36, 52
"""Position of the span's id in a ``traceparent``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt at a job. Times are monotonic seconds; those of phases that it has not reached are 0."""

    job: str
    number: int
    lost_worker: str = ""
    """Its worker, if another process records it."""
    claimed_at: float
    added_at: float = 0.0
    """When the engine got its sequence."""
    first_output_at: float = 0.0
    """When its first output arrived."""
    ended_at: float
    prompt_tokens: int = 0
    cached_tokens: int = 0
    resumed_tokens: int = 0
    """Number of tokens from earlier attempts."""
    output_tokens: int | None = None
    """Number of tokens that it has generated; None if that is not known."""
    outcome: str
    """A finish reason, the kind of a problem, ``cancelled``, or why another attempt continues the job."""
    failed: bool = False
    """Whether ``outcome`` is an error."""
    links_previous: bool = False
    """Whether the previous attempt has spans, to link to."""


def record_attempt(tracing: Tracing, parent: TraceContext, attempt: Attempt) -> None:
    """Record the spans of ``attempt`` as children of ``parent``. The last one has its outcome."""
    prefill: dict[str, str | int] = {"gen_ai.usage.input_tokens": attempt.prompt_tokens}
    if attempt.cached_tokens:
        prefill["gen_ai.usage.cache_read.input_tokens"] = attempt.cached_tokens
    if attempt.resumed_tokens:
        prefill["vinoqueue.resumed_tokens"] = attempt.resumed_tokens
    decode: dict[str, str | int] = {}
    if attempt.output_tokens is not None:
        decode["gen_ai.usage.output_tokens"] = attempt.output_tokens
    phases: tuple[tuple[str, float, float, dict[str, str | int]], ...] = (
        ("prompt", attempt.claimed_at, attempt.added_at, {}),
        ("prefill", attempt.added_at, attempt.first_output_at, prefill),
        ("decode", attempt.first_output_at, attempt.ended_at, decode),
    )
    span_id = _span_id(attempt.job, attempt.number)
    link = _sibling(parent, _span_id(attempt.job, attempt.number - 1)) if attempt.links_previous else None
    for name, started_at, ended_at, attributes in phases:
        last = not ended_at or name == "decode"
        attributes |= {"vinoqueue.job": attempt.job, "vinoqueue.attempt": attempt.number}
        if attempt.lost_worker:
            attributes["vinoqueue.worker"] = attempt.lost_worker
        if last:
            attributes["vinoqueue.outcome"] = attempt.outcome
        error = attempt.outcome if last and attempt.failed else ""
        span = EndedSpan(name, started_at, ended_at or attempt.ended_at, parent, attributes, error, span_id, link)
        tracing.record(span)
        if last:
            return
        span_id, link = "", None


def _span_id(job: str, attempt: int) -> str:
    return blake2b(f"{job} {attempt}".encode(), digest_size=8).hexdigest()


def _sibling(span: TraceContext, span_id: str) -> TraceContext:
    begin, end = _SPAN_ID
    return TraceContext(f"{span.traceparent[:begin]}{span_id}{span.traceparent[end:]}", span.tracestate)
