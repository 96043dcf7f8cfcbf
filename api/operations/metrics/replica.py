"""Metrics that this replica counts itself."""

from collections.abc import Iterator
from typing import get_args

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from api.base import metrics as catalogue
from api.base.histogram import LatencyHistogram
from api.base.metrics import Description
from api.chat.queues import JobQueues
from api.chat.relay import Relay
from api.chat.streams import OpenStreams
from api.media.loader import MediaLoader, Source
from api.models.directory import Directory
from shared.protocol.queue.protocol import Route
from shared.runtime.version import VERSION


class ReplicaCollector(Collector):
    """Collects at each scrape what other parts of this replica count."""

    def __init__(
        self, directory: Directory, relay: Relay, streams: OpenStreams, queues: JobQueues, loader: MediaLoader
    ) -> None:
        self._directory = directory
        self._relay = relay
        self._streams = streams
        self._queues = queues
        self._loader = loader

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        store_up, is_open, frames = catalogue.STORE_UP.gauges(), catalogue.OPEN.gauges(), catalogue.FRAMES.counters()
        store_up.add_metric([], self._directory.reachable)
        is_open.add_metric([], len(self._streams))
        frames.add_metric([], self._relay.frames)
        build = catalogue.BUILD.gauges()
        build.add_metric([VERSION], 1)
        yield from (build, store_up, is_open, frames)
        yield _histograms(catalogue.TOKEN_GAP, self._relay.token_gaps)
        routed = catalogue.ROUTED.counters()
        known = {(model, route): 0 for model in self._directory.fleet.models for route in get_args(Route)}
        for (model, route), count in (known | {(m, r): count for m, r, count in self._queues.routed()}).items():
            routed.add_metric([model, route], count)
        yield routed
        yield _histograms(catalogue.IMAGE_SECONDS, self._loader.times)
        for description, counts in (
            (catalogue.IMAGE_BYTES, self._loader.bytes),
            (catalogue.IMAGE_FAILURES, self._loader.failures),
        ):
            metric = description.counters()
            for source in get_args(Source):
                metric.add_metric([source], counts[source])
            yield metric


def _histograms(description: Description, observed: LatencyHistogram) -> HistogramMetricFamily:
    metric = description.histograms()
    for label, buckets, total in observed.read():
        metric.add_metric([label], buckets, total)
    return metric
