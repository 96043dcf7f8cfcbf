"""The page that Prometheus scrapes: this replica's own counters, and the state of the fleet from the directory."""

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from api.base.histogram import RecentTimes
from api.chat.queues import JobQueues
from api.chat.relay import Relay
from api.chat.stream import ResponseStream
from api.chat.usage_recorder import UsageRecorder
from api.media.loader import MediaLoader
from api.models.directory import Directory
from api.operations.metrics.batches import BatchMetrics
from api.operations.metrics.fleet import FleetCollector, VllmCollector
from api.operations.metrics.replica import ReplicaCollector, RequestMetrics
from shared.protocol.errors import ProblemKind


class Metrics:
    """The metrics of one replica."""

    def __init__(
        self,
        directory: Directory,
        relay: Relay,
        queues: JobQueues,
        loader: MediaLoader,
        first_token_times: RecentTimes,
        *,
        vllm_names: bool = False,
    ) -> None:
        """``vllm_names`` adds the metrics that endpoint pickers of Kubernetes' Gateway API read from vLLM."""
        self._directory = directory
        self._registry = CollectorRegistry()
        self._registry.register(FleetCollector(directory))
        if vllm_names:
            self._registry.register(VllmCollector(directory))
        self._registry.register(ReplicaCollector(directory, relay, queues, loader))
        self._requests = RequestMetrics(self._registry, first_token_times)
        self.batches = BatchMetrics(self._registry)

    def record(self, stream: ResponseStream, usage: UsageRecorder, *, timed: bool = True) -> None:
        """Count a request that has ended. Its times count only if it is ``timed``, as lines of batches are not."""
        self._requests.record(stream, usage, timed=timed)

    def refused(self, kind: ProblemKind) -> None:
        """Count an error response."""
        self._requests.refused(kind)

    def page(self, accept: str = "") -> tuple[bytes, str]:
        """Return the metrics and their content type: OpenMetrics if the header ``accept`` asks for it, else
        Prometheus' text format."""
        self._requests.begin(self._directory.fleet.models)
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type
