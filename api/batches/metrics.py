"""Metrics of the batches that this replica feeds."""

from prometheus_client import CollectorRegistry

from api.metrics import catalogue


class BatchMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = catalogue.BATCH_LINES.counter(registry)
        self._ended = catalogue.ENDED_BATCHES.counter(registry)
        self._unfinished = catalogue.UNFINISHED_BATCHES.gauge(registry)
        # Rates are right only if a series exists before its first event.
        self.requests(completed=0, failed=0)
        for status in ("completed", "failed", "expired", "cancelled"):
            self._ended.labels(status)

    def requests(self, *, completed: int, failed: int) -> None:
        """Count requests that have got a result."""
        self._requests.labels("completed").inc(completed)
        self._requests.labels("failed").inc(failed)

    def ended(self, status: str) -> None:
        self._ended.labels(status).inc()

    def unfinished(self, count: int) -> None:
        self._unfinished.set(count)
