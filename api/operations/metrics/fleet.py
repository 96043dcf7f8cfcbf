"""The state of the fleet, collected from the directory's latest snapshot at each scrape."""

import time
from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from api.base import metrics as catalogue
from api.models.directory import Directory

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
    "engine_restarts": catalogue.RESTARTS,
}

_STATUSES = ("loading", "serving", "draining", "failing")

_BLOCK = 32
"""Tokens per block in the reported size of the KV cache. The engine's own blocks differ between devices."""


class FleetCollector(Collector):
    """Collects queues and workers."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        fleet = self._directory.fleet
        waiting, claimed = catalogue.WAITING.gauges(), catalogue.CLAIMED.gauges()
        drain = catalogue.DRAIN_RATE.gauges()
        for model, depth in fleet.depths.items():
            waiting.add_metric([model], depth.waiting)
            claimed.add_metric([model], depth.claimed)
            if (rate := self._directory.service_rate(model)) is not None:
                drain.add_metric([model], rate)
        yield from (waiting, claimed, drain)

        workers = catalogue.WORKERS.gauges()
        counts = Counter((worker.model, worker.status) for worker in fleet.workers)
        models = fleet.models.keys() | {worker.model for worker in fleet.workers}
        for model in sorted(models):
            # Zeros, so that an alert on a model without workers has a value to compare.
            for status in _STATUSES:
                workers.add_metric([model, status], counts[model, status])
        yield workers

        gauges = {field: description.gauges() for field, description in _WORKER_GAUGES.items()}
        counters = {field: description.counters() for field, description in _WORKER_COUNTERS.items()}
        for worker in fleet.workers:
            for field, metric in (gauges | counters).items():
                metric.add_metric([worker.id, worker.model], getattr(worker, field))
        yield from gauges.values()
        yield from counters.values()


class VllmCollector(Collector):
    """Collects the metrics that endpoint pickers read from vLLM, under vLLM's names."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        fleet = self._directory.fleet
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
