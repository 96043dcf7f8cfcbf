"""Metrics of the batches that this replica feeds."""

from prometheus_client import CollectorRegistry

from api.base import metrics as catalogue


class BatchMetrics:
    """Counts batches and their lines."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._lines = catalogue.BATCH_LINES.counter(registry)
        self._ended = catalogue.ENDED_BATCHES.counter(registry)
        self._unfinished = catalogue.UNFINISHED_BATCHES.gauge(registry)
        # Rates are right only if a series exists before its first event.
        self.lines(completed=0, failed=0)
        for status in ("completed", "failed", "expired", "cancelled"):
            self._ended.labels(status)

    def lines(self, *, completed: int, failed: int) -> None:
        """Count lines that have got a result."""
        self._lines.labels("completed").inc(completed)
        self._lines.labels("failed").inc(failed)

    def ended(self, status: str) -> None:
        """Count a batch that has ended."""
        self._ended.labels(status).inc()

    def unfinished(self, count: int) -> None:
        """Set the number of batches that have not ended."""
        self._unfinished.set(count)
