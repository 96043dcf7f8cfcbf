"""The job queues of all models, as this replica uses them."""

from collections.abc import Iterator

from arq.connections import ArqRedis

from shared.protocol.queue import JobQueue, Route


class JobQueues:
    """Returns the queue of each model, and counts how this replica's jobs were routed."""

    def __init__(self, redis: ArqRedis, *, prefix_routing: bool, lease: float) -> None:
        """``lease`` is the duration of workers' leases in seconds."""
        self._redis = redis
        self._prefix_routing = prefix_routing
        self._lease_ms = int(lease * 1000)
        self._queues: dict[str, JobQueue] = {}

    def of(self, model: str) -> JobQueue:
        """Return the queue of ``model``."""
        queue = self._queues.get(model)
        if queue is None:
            queue = self._queues[model] = JobQueue(
                self._redis, model, prefix_routing=self._prefix_routing, lease_ms=self._lease_ms
            )
        return queue

    def routed(self) -> Iterator[tuple[str, Route, int]]:
        """Yield the number of jobs with long prompts that this replica enqueued, per model and route."""
        for model, queue in self._queues.items():
            for route, count in queue.routed.items():
                yield model, route, count
