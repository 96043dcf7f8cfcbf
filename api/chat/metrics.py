"""Metrics of the requests that this replica has served or refused."""

import time
from collections.abc import Iterable
from typing import get_args

from prometheus_client import CollectorRegistry

from api.base import metrics as catalogue
from api.base.histogram import RecentTimes
from api.chat.stream import ResponseStream
from api.chat.usage_recorder import UsageRecorder
from shared.protocol.errors import ProblemKind
from shared.protocol.events import MoveCause

_CAUSES = frozenset(get_args(MoveCause))

FAILURES = (
    ProblemKind.LOST,
    ProblemKind.POISON,
    ProblemKind.ENGINE_FAILED,
    ProblemKind.INTERNAL,
    ProblemKind.CACHE_EXHAUSTED,
    ProblemKind.NO_WORKER,
    ProblemKind.QUEUE_TIMEOUT,
    ProblemKind.TIMEOUT,
)
"""Outcomes of accepted requests that are failures of the service. The alert VinoqueueRequestsFail counts them."""


class RequestMetrics:
    """Counts requests when they end."""

    def __init__(self, registry: CollectorRegistry, first_token_times: RecentTimes) -> None:
        self._first_token_times = first_token_times
        self._requests = catalogue.REQUESTS.counter(registry)
        self._refused = catalogue.REFUSED.counter(registry)
        self._first_token = catalogue.FIRST_TOKEN.histogram(registry)
        self._queue_wait = catalogue.QUEUE_WAIT.histogram(registry)
        self._prompt = catalogue.PROMPT.histogram(registry)
        self._prefill = catalogue.PREFILL.histogram(registry)
        self._duration = catalogue.DURATION.histogram(registry)
        self._prompt_tokens = catalogue.PROMPT_TOKENS.counter(registry)
        self._cached_tokens = catalogue.CACHED_TOKENS.counter(registry)
        self._completion_tokens = catalogue.COMPLETION_TOKENS.counter(registry)
        self._migrations = catalogue.MIGRATIONS.counter(registry)
        self._models: set[str] = set()
        # Counters begin at 0, because Prometheus sees no increase in a series that begins at 1.
        for kind in ProblemKind:
            self._refused.labels(kind)

    def begin(self, models: Iterable[str]) -> None:
        """Begin the counters that alerts watch at 0, for models that are new."""
        for model in models:
            if model in self._models:
                continue
            self._models.add(model)
            for cause in _CAUSES:
                self._migrations.labels(model, cause)
            for kind in FAILURES:
                self._requests.labels(model, kind)

    def record(self, stream: ResponseStream, usage: UsageRecorder, *, timed: bool = True) -> None:
        """Count a request that has ended, and if it is ``timed``, its times."""
        model = stream.model
        self._requests.labels(model, usage.outcome).inc()
        self._prompt_tokens.labels(model).inc(usage.prompt_tokens)
        self._cached_tokens.labels(model).inc(usage.cached_tokens)
        self._completion_tokens.labels(model).inc(usage.completion_tokens)
        for cause in stream.move_causes:
            self._migrations.labels(model, cause if cause in _CAUSES else "unknown").inc()
        if not timed:
            return
        # By this name, logs and the fleet view know the request.
        exemplar = {"job": stream.jobs[0].partition(":")[0][:64]}
        if usage.trace_id:
            exemplar["trace_id"] = usage.trace_id
        self._duration.labels(model).observe(time.monotonic() - usage.started_at, exemplar)
        if usage.first_token is not None:
            self._first_token.labels(model).observe(usage.first_token - usage.started_at, exemplar)
            self._first_token_times.observe(model, usage.first_token - usage.started_at)
        for metric, seconds in (
            (self._queue_wait, usage.queue_wait),
            (self._prompt, usage.prompt_seconds),
            (self._prefill, usage.prefill_seconds),
        ):
            if seconds is not None:
                metric.labels(model).observe(seconds, exemplar)

    def refused(self, kind: ProblemKind) -> None:
        """Count an error response."""
        self._refused.labels(kind).inc()
