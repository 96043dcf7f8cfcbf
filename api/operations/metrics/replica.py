"""Metrics that this replica counts itself."""

import time
from collections.abc import Iterable, Iterator
from typing import get_args

from prometheus_client import CollectorRegistry
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from api.base.histogram import LatencyHistogram, RecentTimes
from api.chat.queues import JobQueues
from api.chat.relay import Relay
from api.chat.stream import ResponseStream
from api.chat.usage_recorder import UsageRecorder
from api.media.loader import MediaLoader
from api.models.directory import Directory
from api.operations.metrics import catalogue
from api.operations.metrics.catalogue import Description
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

    def record(self, stream: ResponseStream, usage: UsageRecorder, *, timed: bool) -> None:
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


class ReplicaCollector(Collector):
    """Collects at each scrape what other parts of this replica count."""

    def __init__(self, directory: Directory, relay: Relay, queues: JobQueues, loader: MediaLoader) -> None:
        self._directory = directory
        self._relay = relay
        self._queues = queues
        self._loader = loader

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        store_up, is_open, frames = catalogue.STORE_UP.gauges(), catalogue.OPEN.gauges(), catalogue.FRAMES.counters()
        store_up.add_metric([], self._directory.reachable)
        is_open.add_metric([], len(self._relay.streams()))
        frames.add_metric([], self._relay.frames)
        yield from (store_up, is_open, frames)
        yield _histograms(catalogue.TOKEN_GAP, self._relay.token_gaps)
        routed = catalogue.ROUTED.counters()
        for model, route, count in self._queues.routed():
            routed.add_metric([model, route], count)
        yield routed
        yield _histograms(catalogue.IMAGE_SECONDS, self._loader.times)
        for description, counts in (
            (catalogue.IMAGE_BYTES, self._loader.bytes),
            (catalogue.IMAGE_FAILURES, self._loader.failures),
        ):
            metric = description.counters()
            for source, count in counts.items():
                metric.add_metric([source], count)
            yield metric


def _histograms(description: Description, observed: LatencyHistogram) -> HistogramMetricFamily:
    metric = description.histograms()
    for label, buckets, total in observed.read():
        metric.add_metric([label], buckets, total)
    return metric
