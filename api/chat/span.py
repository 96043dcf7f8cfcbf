"""The span of a chat request, with the attributes of OpenTelemetry's semantic conventions for generative AI.

Prompts and responses are never recorded.
"""

import time

from api.chat.stream import ResponseStream, StartedAttempt
from api.chat.usage import UsageRecorder
from shared.protocol.errors import ProblemKind
from shared.protocol.events import Started
from shared.protocol.request import ChatRequest, TraceContext
from shared.tracing import NO_SPAN, EndedSpan, Span, Tracing
from shared.tracing.attempt import Attempt, record_attempt

PROVIDER = "vinoqueue"
_PROBLEMS = frozenset(ProblemKind) - {ProblemKind.CANCELLED}
"""The outcomes that are errors."""


def start_background(tracing: Tracing, parent: Span, at: float) -> Span:
    """Start the span of a background response, a child of the span of the request that creates it."""
    return NO_SPAN if parent.context is None else tracing.start_span("background response", at, parent=parent.context)


def describe_request(span: Span, request: ChatRequest) -> None:
    """Add the parameters of ``request`` to ``span``."""
    if span.context is None or request.tokenization is not None:
        return
    sampling = request.sampling
    attributes: dict[str, str | bool | int | float | None] = {
        "gen_ai.operation.name": "text_completion" if request.prompts else "chat",
        "gen_ai.provider.name": PROVIDER,
        "gen_ai.request.model": request.model,
        "gen_ai.request.stream": request.stream or None,
        "gen_ai.request.choice.count": request.n if request.n > 1 else None,
        "gen_ai.request.max_tokens": sampling.max_tokens,
        "gen_ai.request.temperature": sampling.temperature,
        "gen_ai.request.top_p": sampling.top_p,
        "gen_ai.request.top_k": sampling.top_k,
        "gen_ai.request.frequency_penalty": sampling.frequency_penalty,
        "gen_ai.request.presence_penalty": sampling.presence_penalty,
        "gen_ai.request.seed": sampling.seed,
    }
    span.set({name: value for name, value in attributes.items() if value is not None})


def describe_response(span: Span, request: ChatRequest, usage: UsageRecorder, response_id: str) -> None:
    """Add the response's id and usage to ``span``. ``response_id`` is the response's, without its dialect's prefix."""
    if span.context is None:
        return
    span.set(
        {
            "gen_ai.response.id": response_id,
            "gen_ai.response.model": request.model,
            "gen_ai.usage.input_tokens": usage.prompt_tokens,
            "gen_ai.usage.output_tokens": usage.completion_tokens,
        }
    )
    if usage.cached_tokens:
        span.set({"gen_ai.usage.cache_read.input_tokens": usage.cached_tokens})
    if usage.outcome not in _PROBLEMS and usage.outcome != "aborted":
        span.set({"gen_ai.response.finish_reasons": [usage.outcome]})
    if usage.first_token is not None:
        span.set({"gen_ai.response.time_to_first_chunk": round(usage.first_token - usage.started_at, 6)})


def record_jobs(tracing: Tracing, parent: TraceContext, stream: ResponseStream, usage: UsageRecorder) -> None:
    """Record the times in the queue, and the attempts whose worker was lost. Workers record all other attempts."""
    if usage.queued is None:
        return
    attempts: dict[int, list[StartedAttempt]] = {}
    for attempt in stream.attempts:
        attempts.setdefault(attempt.choice, []).append(attempt)
    for choice, job in enumerate(stream.jobs):
        since, before = usage.queued, None
        for attempt in attempts.get(choice, ()):
            started = attempt.started
            if before is not None:
                since = attempt.last_token or before.arrived
                if started.cause == "worker_lost" and started.attempt == before.started.attempt + 1:
                    _record_lost(tracing, parent, job, before, attempt)
            claimed = max(since, attempt.arrived - started.prompt_seconds - started.prefill_seconds)
            _record_wait(tracing, parent, job, since, claimed, started)
            before = attempt
        if before is None and not usage.prompts:
            _record_wait(tracing, parent, job, since, time.monotonic(), None)


def end(span: Span, usage: UsageRecorder) -> None:
    """End the span of a request without an HTTP exchange."""
    span.set({"vinoqueue.outcome": usage.outcome})
    span.end(time.monotonic(), error=usage.outcome if usage.outcome in _PROBLEMS else "")


def _record_wait(
    tracing: Tracing, parent: TraceContext, job: str, started_at: float, ended_at: float, started: Started | None
) -> None:
    attributes: dict[str, str | int] = {"vinoqueue.job": job}
    if started is not None:
        attributes["vinoqueue.attempt"] = started.attempt
        if started.cause:
            attributes["vinoqueue.cause"] = started.cause
    tracing.record(EndedSpan("queue", started_at, ended_at, parent, attributes))


def _record_lost(
    tracing: Tracing, parent: TraceContext, job: str, lost: StartedAttempt, following: StartedAttempt
) -> None:
    started = lost.started
    added = lost.arrived - started.prefill_seconds
    record_attempt(
        tracing,
        parent,
        Attempt(
            job=job,
            number=started.attempt,
            lost_worker=started.worker,
            claimed_at=added - started.prompt_seconds,
            added_at=added,
            first_output_at=lost.arrived,
            ended_at=max(lost.arrived, following.last_token),
            prompt_tokens=started.prompt_tokens,
            cached_tokens=started.cached_tokens,
            resumed_tokens=lost.tokens,
            output_tokens=following.tokens - lost.tokens,
            outcome="worker_lost",
            failed=True,
            links_previous=started.attempt > 1,
        ),
    )
