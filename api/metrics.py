"""Prometheus metrics: this replica's own counters, and the state of the fleet from the directory.

``docs/metrics.md`` is the catalogue.
"""

import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from api.answers.usage_recorder import UsageRecorder
from api.directory import Directory
from api.first_token_times import FirstTokenTimes
from api.jobs.queues import JobQueues
from api.relay import Relay
from shared.protocol.errors import ProblemKind

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Metrics:
    """The metrics of one replica."""

    def __init__(
        self, directory: Directory, relay: Relay, queues: JobQueues, first_token_times: FirstTokenTimes
    ) -> None:
        self._first_token_times = first_token_times
        self._registry = CollectorRegistry()
        self._registry.register(_FleetCollector(directory, relay))
        self._registry.register(_RouteCollector(queues))
        self._requests = Counter(
            "vinoqueue_requests",
            "Accepted requests that have ended, by outcome.",
            ["model", "outcome"],
            registry=self._registry,
        )
        self._refused = Counter(
            "vinoqueue_refused_requests",
            "Error responses, by kind.",
            ["kind"],
            registry=self._registry,
        )
        self._first_token = Histogram(
            "vinoqueue_time_to_first_token_seconds",
            "Time from the request to its first token.",
            ["model"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._duration = Histogram(
            "vinoqueue_request_duration_seconds",
            "Time from the request to its end.",
            ["model"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._prompt_tokens = Counter(
            "vinoqueue_prompt_tokens", "Prompt tokens of accepted requests.", ["model"], registry=self._registry
        )
        self._completion_tokens = Counter(
            "vinoqueue_completion_tokens", "Tokens relayed to clients.", ["model"], registry=self._registry
        )

    def record(self, model: str, usage: UsageRecorder) -> None:
        """Count a request that has ended."""
        self._requests.labels(model, usage.outcome).inc()
        self._prompt_tokens.labels(model).inc(usage.prompt_tokens)
        self._completion_tokens.labels(model).inc(usage.completion_tokens)
        self._duration.labels(model).observe(time.monotonic() - usage.began)
        if usage.first_token is not None:
            self._first_token.labels(model).observe(usage.first_token - usage.began)
            self._first_token_times.record(model, usage.first_token - usage.began)

    def refused(self, kind: ProblemKind) -> None:
        """Count an error response."""
        self._refused.labels(kind).inc()

    def page(self) -> bytes:
        """Return the metrics in Prometheus text format."""
        return generate_latest(self._registry)


class _RouteCollector(Collector):
    """Collects the counters of this replica's queues."""

    def __init__(self, queues: JobQueues) -> None:
        self._queues = queues

    def collect(self) -> Iterator[Metric]:
        """Yield the metric."""
        routed = CounterMetricFamily(
            "vinoqueue_prefix_routed_jobs", "Jobs with long prompts, by route.", labels=["model", "route"]
        )
        for model, route, count in self._queues.routed():
            routed.add_metric([model, route], count)
        yield routed


class _FleetCollector(Collector):
    """Collects the directory's latest snapshot at each scrape."""

    def __init__(self, directory: Directory, relay: Relay) -> None:
        self._directory = directory
        self._relay = relay

    def collect(self) -> Iterator[Metric]:
        """Yield the fleet's metrics."""
        fleet = self._directory.fleet
        yield GaugeMetricFamily(
            "vinoqueue_store_up", "1 while the store responds to this replica.", self._directory.reachable
        )
        yield GaugeMetricFamily(
            "vinoqueue_open_answers", "Requests in flight on this replica.", len(self._relay.streams())
        )
        yield CounterMetricFamily("vinoqueue_frames", "Frames received from workers.", self._relay.frames)

        waiting = GaugeMetricFamily("vinoqueue_queue_waiting", "Waiting jobs.", labels=["model"])
        claimed = GaugeMetricFamily("vinoqueue_queue_claimed", "Jobs that workers hold.", labels=["model"])
        drain = GaugeMetricFamily(
            "vinoqueue_queue_drain_rate", "Jobs that leave the queue per second while some wait.", labels=["model"]
        )
        for model, depth in fleet.depths.items():
            waiting.add_metric([model], depth.waiting)
            claimed.add_metric([model], depth.claimed)
            if (rate := self._directory.service_rate(model)) is not None:
                drain.add_metric([model], rate)
        yield from (waiting, claimed, drain)

        labels = ["worker", "model"]
        gauges = {
            "slots": GaugeMetricFamily("vinoqueue_worker_slots", "Slots of the worker.", labels=labels),
            "used": GaugeMetricFamily("vinoqueue_worker_slots_used", "Slots in use.", labels=labels),
            "batch": GaugeMetricFamily(
                "vinoqueue_worker_batch_size", "Requests in the engine's last step.", labels=labels
            ),
            "engine_requests": GaugeMetricFamily(
                "vinoqueue_worker_engine_requests", "Requests that the engine holds.", labels=labels
            ),
            "cache_usage": GaugeMetricFamily(
                "vinoqueue_worker_kv_cache_usage_ratio", "Share of the KV cache in use, 0 to 1.", labels=labels
            ),
            "tokens_per_second": GaugeMetricFamily(
                "vinoqueue_worker_tokens_per_second", "Token rate over the last seconds.", labels=labels
            ),
        }
        counters = {
            "steps": CounterMetricFamily("vinoqueue_worker_steps", "Engine steps.", labels=labels),
            "tokens": CounterMetricFamily("vinoqueue_worker_tokens", "Generated tokens.", labels=labels),
            "requests": CounterMetricFamily("vinoqueue_worker_requests", "Claimed jobs.", labels=labels),
            "lost_rows": CounterMetricFamily(
                "vinoqueue_worker_lost_logits", "Requests that failed because their logits were lost.", labels=labels
            ),
            "engine_restarts": CounterMetricFamily(
                "vinoqueue_worker_engine_restarts", "Replaced engine processes.", labels=labels
            ),
        }
        for worker in fleet.workers:
            for field, metric in (gauges | counters).items():
                metric.add_metric([worker.id, worker.model], getattr(worker, field))
        yield from gauges.values()
        yield from counters.values()
