"""The span of a chat request, with the attributes of OpenTelemetry's semantic conventions for generative AI.

Prompts and responses are never recorded.
"""

import time

from api.chat.stream import ResponseStream
from api.chat.usage import UsageRecorder
from shared.protocol.errors import ProblemKind
from shared.protocol.request import ChatRequest
from shared.tracing import NO_SPAN, Span, Tracing

PROVIDER = "vinoqueue"
_PROBLEMS = frozenset(ProblemKind) - {ProblemKind.CANCELLED}
"""The outcomes that are errors."""


def start_background_span(tracing: Tracing, parent: Span, at: float) -> Span:
    """Start the span of a background response, a child of the span of the request that creates it."""
    return NO_SPAN if parent.context is None else tracing.start_span("background response", at, parent=parent.context)


def describe_request(span: Span, request: ChatRequest) -> None:
    """Add the parameters of ``request`` to ``span``."""
    if span.context is None or not request.work.metered:
        return
    sampling = request.sampling
    attributes: dict[str, str | bool | int | float | None] = {
        "gen_ai.operation.name": "text_completion" if request.prompts else "chat",
        "gen_ai.provider.name": PROVIDER,
        "gen_ai.request.model": request.model,
        "gen_ai.request.stream": request.response.stream or None,
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


def add_events(span: Span, stream: ResponseStream, usage: UsageRecorder) -> None:
    """Add to ``span`` when the jobs were queued, which workers have claimed them and why, and the first token."""
    if usage.queued is None:
        return
    span.add_event("queued", usage.queued)
    for choice, started, arrived in stream.attempts:
        attributes: dict[str, str | int] = {
            "vinoqueue.job": stream.jobs[choice],
            "vinoqueue.attempt": started.attempt,
            "vinoqueue.worker": started.worker,
        }
        if started.cause:
            attributes["vinoqueue.cause"] = started.cause
        span.add_event("claimed", arrived - started.prompt_seconds - started.prefill_seconds, attributes)
    if usage.first_token is not None:
        span.add_event("first token", usage.first_token)


def end_background_span(span: Span, usage: UsageRecorder) -> None:
    """End the span of a request without an HTTP exchange."""
    span.set({"vinoqueue.outcome": usage.outcome})
    span.end(time.monotonic(), error=usage.outcome if usage.outcome in _PROBLEMS else "")
