"""Metrics that this replica counts itself."""

from collections.abc import Iterator

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from api.base import metrics as catalogue
from api.base.histogram import LatencyHistogram
from api.base.metrics import Description
from api.chat.queues import JobQueues
from api.chat.relay import Relay
from api.media.loader import MediaLoader
from api.models.directory import Directory


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
