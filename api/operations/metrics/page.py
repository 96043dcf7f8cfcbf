"""The page that Prometheus scrapes: this replica's own counters, and the state of the fleet from the directory."""

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from api.chat.metrics import RequestMetrics
from api.chat.queues import JobQueues
from api.chat.relay import Relay
from api.chat.streams import OpenStreams
from api.media.loader import MediaLoader
from api.models.directory import Directory
from api.operations.metrics.fleet import FleetCollector, VllmCollector
from api.operations.metrics.replica import ReplicaCollector


class Metrics:
    """The metrics of one replica."""

    def __init__(
        self,
        registry: CollectorRegistry,
        requests: RequestMetrics,
        directory: Directory,
        relay: Relay,
        streams: OpenStreams,
        queues: JobQueues,
        loader: MediaLoader,
        *,
        vllm_names: bool = False,
    ) -> None:
        """``registry`` has the metrics that other parts count themselves, such as those of ``requests``.

        ``vllm_names`` adds the metrics that endpoint pickers of Kubernetes' Gateway API read from vLLM.
        """
        self._directory = directory
        self._requests = requests
        self._registry = registry
        registry.register(FleetCollector(directory))
        if vllm_names:
            registry.register(VllmCollector(directory))
        registry.register(ReplicaCollector(directory, relay, streams, queues, loader))

    def page(self, accept: str = "") -> tuple[bytes, str]:
        """Return the metrics and their content type: OpenMetrics if the header ``accept`` asks for it, else
        Prometheus' text format."""
        self._requests.begin(self._directory.fleet.models)
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type
