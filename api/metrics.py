"""What `/metrics` tells: this replica's own counts, and the fleet as the directory last saw it.

docs/metrics.md is the catalogue.
"""

import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from api.answers.usage_recorder import UsageRecorder
from api.directory import Directory
from api.jobs.queues import JobQueues
from api.relay import Relay
from shared.protocol.errors import ProblemKind

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Metrics:
    """Counters of one replica, and the page that shows them."""

    def __init__(self, directory: Directory, relay: Relay, queues: JobQueues) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_FleetCollector(directory, relay))
        self._registry.register(_RouteCollector(queues))
        self._requests = Counter(
            "vinoqueue_requests", "Accepted requests by outcome.", ["model", "outcome"], registry=self._registry
        )
        self._refused = Counter(
            "vinoqueue_refused_requests",
            "Errors told instead of an answer, by kind.",
            ["kind"],
            registry=self._registry,
        )
        self._first_token = Histogram(
            "vinoqueue_time_to_first_token_seconds",
            "From the accepted request to its first token.",
            ["model"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._duration = Histogram(
            "vinoqueue_request_duration_seconds",
            "From the accepted request to its end.",
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

    def record(self, model: str, tally: UsageRecorder) -> None:
        """Count a request that is over."""
        self._requests.labels(model, tally.outcome).inc()
        self._prompt_tokens.labels(model).inc(tally.prompt_tokens)
        self._completion_tokens.labels(model).inc(tally.completion_tokens)
        self._duration.labels(model).observe(time.monotonic() - tally.began)
        if tally.first_token is not None:
            self._first_token.labels(model).observe(tally.first_token - tally.began)

    def refused(self, kind: ProblemKind) -> None:
        """Count a request that was answered with an error."""
        self._refused.labels(kind).inc()

    def page(self) -> bytes:
        """The metrics in Prometheus' text form."""
        return generate_latest(self._registry)


class _RouteCollector(Collector):
    """Reads the counts of the queues that this replica puts jobs into."""

    def __init__(self, queues: JobQueues) -> None:
        self._queues = queues

    def collect(self) -> Iterator[Metric]:
        """Yield the metric."""
        routed = CounterMetricFamily(
            "vinoqueue_prefix_routed_jobs", "Texts with long prompts, by where they went.", labels=["model", "route"]
        )
        for model, route, count in self._queues.routed():
            routed.add_metric([model, route], count)
        yield routed


class _FleetCollector(Collector):
    """Reads the directory's last look at the moment of the scrape."""

    def __init__(self, directory: Directory, relay: Relay) -> None:
        self._directory = directory
        self._relay = relay

    def collect(self) -> Iterator[Metric]:
        """Yield the fleet's metrics."""
        fleet = self._directory.fleet
        yield GaugeMetricFamily("vinoqueue_store_up", "Whether Redis answered last time.", self._directory.reachable)
        yield GaugeMetricFamily("vinoqueue_open_answers", "Requests in flight here.", len(self._relay.streams()))
        yield CounterMetricFamily("vinoqueue_frames", "Frames received from workers.", self._relay.frames)

        waiting = GaugeMetricFamily("vinoqueue_queue_waiting", "Requests that wait.", labels=["model"])
        claimed = GaugeMetricFamily("vinoqueue_queue_claimed", "Requests that workers hold.", labels=["model"])
        drain = GaugeMetricFamily(
            "vinoqueue_queue_drain_rate", "Requests that leave the queue in a second while some wait.", labels=["model"]
        )
        for model, depth in fleet.depths.items():
            waiting.add_metric([model], depth.waiting)
            claimed.add_metric([model], depth.claimed)
            if (rate := self._directory.service_rate(model)) is not None:
                drain.add_metric([model], rate)
        yield from (waiting, claimed, drain)

        labels = ["worker", "model"]
        gauges = {
            "slots": GaugeMetricFamily("vinoqueue_worker_slots", "Batch slots of the worker.", labels=labels),
            "used": GaugeMetricFamily("vinoqueue_worker_slots_used", "Batch slots in use.", labels=labels),
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
            "steps": CounterMetricFamily("vinoqueue_worker_steps", "Steps of the engine.", labels=labels),
            "tokens": CounterMetricFamily("vinoqueue_worker_tokens", "Tokens that the engine made.", labels=labels),
            "requests": CounterMetricFamily("vinoqueue_worker_requests", "Requests that it claimed.", labels=labels),
            "engine_restarts": CounterMetricFamily(
                "vinoqueue_worker_engine_restarts", "Engine processes that were replaced.", labels=labels
            ),
        }
        for worker in fleet.workers:
            for field, metric in (gauges | counters).items():
                metric.add_metric([worker.id, worker.model], getattr(worker, field))
        yield from gauges.values()
        yield from counters.values()
