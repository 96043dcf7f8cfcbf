"""The metrics that a scrape collects: the state of the fleet, and what this replica counts itself."""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args

from prometheus_client import CollectorRegistry
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from api.chat.queues import JobQueues
from api.chat.relay import Relay
from api.chat.streams import OpenStreams
from api.chat.usage import RequestMetrics
from api.metrics import catalogue
from api.metrics.catalogue import Description
from api.metrics.histogram import LatencyHistogram
from api.models.directory import Directory
from shared.protocol.queue.protocol import Route
from shared.protocol.registry import PlacementStatus, UnloadCause
from shared.runtime.logs import dropped_lines
from shared.runtime.version import VERSION

_WORKER_GAUGES = {
    "slots": catalogue.SLOTS,
    "used": catalogue.USED,
    "batch": catalogue.BATCH,
    "engine_requests": catalogue.ENGINE_REQUESTS,
    "cache_usage": catalogue.CACHE_USAGE,
    "tokens_per_second": catalogue.TOKEN_RATE,
}
"""Fields of workers' registry records, and their metrics."""

_WORKER_COUNTERS = {
    "steps": catalogue.STEPS,
    "tokens": catalogue.TOKENS,
    "requests": catalogue.CLAIMS,
    "lost_rows": catalogue.LOST_LOGITS,
    "preemptions": catalogue.PREEMPTIONS,
    "drafted": catalogue.DRAFTED,
    "accepted": catalogue.ACCEPTED,
    "engine_restarts": catalogue.RESTARTS,
}

_MODEL_COUNTERS = {
    "loads": catalogue.LOADS,
    "failures": catalogue.LOAD_FAILURES,
    "resident_seconds": catalogue.RESIDENCE,
}
"""Fields of the models in nodes' registry records, and their metrics."""

_STATUSES = ("loading", "serving", "draining", "failing")

_BLOCK = 32
"""Tokens per block in the reported size of the KV cache. The engine's own blocks differ between devices."""


def _fleet(directory: Directory) -> Iterator[Metric]:
    fleet = directory.fleet
    waiting, claimed = catalogue.WAITING.gauges(), catalogue.CLAIMED.gauges()
    drain = catalogue.DRAIN_RATE.gauges()
    for model, depth in fleet.depths.items():
        waiting.add_metric([model], depth.waiting)
        claimed.add_metric([model], depth.claimed)
        if (rate := directory.service_rate(model)) is not None:
            drain.add_metric([model], rate)
    yield from (waiting, claimed, drain)

    workers = catalogue.WORKERS.gauges()
    counts = Counter((worker.model, worker.status) for worker in fleet.workers)
    models = fleet.models.keys() | {worker.model for worker in fleet.workers}
    for model in sorted(models):
        # Zeros, so that an alert on a model without workers has a value to compare.
        for status in _STATUSES:
            workers.add_metric([model, status], counts[model, status])
    kinds = catalogue.KIND.gauges()
    for name, info in sorted(fleet.models.items()):
        for kind in info.kinds:
            kinds.add_metric([name, kind], 1)
    yield from (workers, kinds)

    gauges = {field: description.gauges() for field, description in _WORKER_GAUGES.items()}
    counters = {field: description.counters() for field, description in _WORKER_COUNTERS.items()}
    for worker in fleet.workers:
        for field, metric in (gauges | counters).items():
            metric.add_metric([worker.id, worker.model], getattr(worker, field))
    yield from gauges.values()
    yield from counters.values()


def _nodes(directory: Directory) -> Iterator[Metric]:
    """Yield what nodes say about the models of their catalogues."""
    fleet = directory.fleet
    states, waits = catalogue.MODEL_STATE.gauges(), catalogue.MODEL_WAIT.gauges()
    for name, declared in sorted(fleet.catalogue.items()):
        for state in get_args(PlacementStatus):
            states.add_metric([name, state], declared.state == state)
        waits.add_metric([name], declared.waited)
    capacity, memory = catalogue.NODE_MEMORY.gauges(), catalogue.MODEL_MEMORY.gauges()
    seconds, unloads = catalogue.LOAD_SECONDS.gauges(), catalogue.UNLOADS.counters()
    counters = {field: description.counters() for field, description in _MODEL_COUNTERS.items()}
    for node in fleet.nodes:
        for device, size in {"host": node.memory, **node.devices}.items():
            capacity.add_metric([node.id, device], size)
        for model in node.models:
            labels = [node.id, model.name]
            for device, size in {"host": model.memory, **model.device_memory}.items():
                memory.add_metric([*labels, device], size if model.in_memory else 0)
            seconds.add_metric(labels, model.load_seconds)
            for field, metric in counters.items():
                metric.add_metric(labels, getattr(model, field))
            for cause in get_args(UnloadCause):
                unloads.add_metric([*labels, cause], model.unloads.get(cause, 0))
    yield from (states, waits, capacity, memory, seconds, unloads, *counters.values())


def _vllm(directory: Directory) -> Iterator[Metric]:
    """Yield the metrics that endpoint pickers read from vLLM, under vLLM's names."""
    fleet = directory.fleet
    waiting, running = catalogue.VLLM_WAITING.gauges(), catalogue.VLLM_RUNNING.gauges()
    for model, depth in fleet.depths.items():
        waiting.add_metric([model], depth.waiting)
        running.add_metric([model], depth.claimed)
    usage, config = catalogue.VLLM_CACHE_USAGE.gauges(), catalogue.VLLM_CACHE_CONFIG.gauges()
    for model in fleet.serving():
        workers = [worker for worker in fleet.workers if worker.model == model and worker.status == "serving"]
        if workers:
            usage.add_metric([model], sum(worker.cache_usage for worker in workers) / len(workers))
            blocks = sum(worker.cache_tokens for worker in workers) // _BLOCK
            config.add_metric([model, str(_BLOCK), str(blocks)], 1)
    lora = catalogue.VLLM_LORA.gauges()
    lora.add_metric(["0", "", ""], time.time())
    yield from (waiting, running, usage, config, lora)


@dataclass(frozen=True, slots=True, eq=False)
class Metrics(Collector):
    """Collects the state of the fleet, and what other parts of this replica count, at each scrape."""

    registry: CollectorRegistry
    """Has the metrics that other parts count themselves, such as those of ``requests``."""
    requests: RequestMetrics
    directory: Directory
    relay: Relay
    streams: OpenStreams
    queues: JobQueues

    def __post_init__(self) -> None:
        self.registry.register(self)

    def collect(self) -> Iterator[Metric]:
        yield from _fleet(self.directory)
        yield from _nodes(self.directory)
        yield from _vllm(self.directory)
        store_up, ready = catalogue.STORE_UP.gauges(), catalogue.READY.gauges()
        is_open, frames = catalogue.OPEN.gauges(), catalogue.FRAMES.counters()
        reachable = self.directory.reachable
        store_up.add_metric([], reachable)
        ready.add_metric([], reachable and self.relay.listening and self.directory.fleet.can_serve())
        is_open.add_metric([], len(self.streams))
        frames.add_metric([], self.relay.frames)
        dropped = catalogue.DROPPED_LINES.counters()
        dropped.add_metric([], dropped_lines())
        build = catalogue.BUILD.gauges()
        build.add_metric([VERSION], 1)
        yield from (build, store_up, ready, is_open, frames, dropped)
        yield _histograms(catalogue.TOKEN_GAP, self.relay.token_gaps)
        routed = catalogue.ROUTED.counters()
        known = {(model, route): 0 for model in self.directory.fleet.models for route in get_args(Route)}
        for (model, route), count in (known | {(m, r): count for m, r, count in self.queues.routed()}).items():
            routed.add_metric([model, route], count)
        yield routed

    def page(self, accept: str = "") -> tuple[bytes, str]:
        """Return the metrics and their content type: OpenMetrics if the header ``accept`` asks for it, else
        Prometheus' text format."""
        self.requests.begin(self.directory.fleet.models)
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type


def _histograms(description: Description, observed: LatencyHistogram) -> HistogramMetricFamily:
    metric = description.histograms()
    for label, buckets, total in observed.read():
        metric.add_metric([label], buckets, total)
    return metric
