"""The metrics of ``/metrics``: name, type, labels and meaning of each.

Collectors get their metrics from here, so a metric that is not declared does not exist. ``make docs`` writes the table
of docs/metrics.md from :data:`CATALOGUE`; dashboard and alert rules are checked against it.
"""

from dataclasses import dataclass
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from api.metrics.histogram import BUCKETS

# The time at which each series began is of no use here, and doubles the number of series.
disable_created_metrics()  # type: ignore[no-untyped-call] # the function has no annotations


@dataclass(frozen=True, slots=True)
class Description:
    """One metric. Counters are named without the suffix ``_total``."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    labels: tuple[str, ...] = ()
    look: str = ""
    """When an operator looks at it."""
    optional: str = ""
    """The setting that adds it, if it is not always there."""

    @property
    def sample(self) -> str:
        """Its name in queries; histograms append ``_bucket``, ``_sum`` or ``_count``."""
        return f"{self.name}_total" if self.kind == "counter" else self.name

    def counter(self, registry: CollectorRegistry) -> Counter:
        return Counter(self.name, self.meaning, self.labels, registry=registry)

    def gauge(self, registry: CollectorRegistry) -> Gauge:
        return Gauge(self.name, self.meaning, self.labels, registry=registry)

    def histogram(self, registry: CollectorRegistry) -> Histogram:
        return Histogram(self.name, self.meaning, self.labels, buckets=BUCKETS, registry=registry)

    def counters(self) -> CounterMetricFamily:
        return CounterMetricFamily(self.name, self.meaning, labels=self.labels)

    def gauges(self) -> GaugeMetricFamily:
        return GaugeMetricFamily(self.name, self.meaning, labels=self.labels)

    def histograms(self) -> HistogramMetricFamily:
        return HistogramMetricFamily(self.name, self.meaning, labels=self.labels)


_MODEL = ("model",)
_WORKER = ("worker", "model")
_PLACED = ("node", "model")
_SOURCE = ("source",)
_KEY = ("model", "key")
_BY_KEY = "metrics_by_key"

BUILD = Description("vinoqueue_build_info", "gauge", "Always 1; `version` is that of this replica.", ("version",))
REQUESTS = Description(
    "vinoqueue_requests",
    "counter",
    "Accepted requests that have ended, by `outcome`: the finish reason, `aborted` (the client disconnected), "
    "`cancelled` (a background response that was cancelled or deleted) or the kind of failure.",
    ("model", "outcome"),
    "errors rise",
)
REFUSED = Description(
    "vinoqueue_refused_requests",
    "counter",
    "Error responses sent instead of a result, by kind of error. Includes accepted requests that failed before their "
    "first token.",
    ("kind",),
    "clients see 429 or 503",
)
FIRST_TOKEN = Description(
    "vinoqueue_time_to_first_token_seconds",
    "histogram",
    "Time from the arrival of a request to its first token, including the wait in the queue.",
    _MODEL,
    "users report slow starts",
)
QUEUE_WAIT = Description(
    "vinoqueue_queue_wait_seconds",
    "histogram",
    "Time from enqueueing a request's jobs until a worker claims the first job that starts. Includes the time lost in "
    "attempts that ended before their first token.",
    _MODEL,
    "first tokens are late: too few slots",
)
PROMPT = Description(
    "vinoqueue_prompt_seconds",
    "histogram",
    "Time from the claim until the engine gets the sequence: chat template, tokenization, images, grammar, and the "
    "wait for another prompt with the same prefix.",
    _MODEL,
    "first tokens are late, but nothing waits in the queue",
)
PREFILL = Description(
    "vinoqueue_prefill_seconds",
    "histogram",
    "Time from when the engine gets a sequence until its first token.",
    _MODEL,
    "first tokens are late: long prompts, or a `--prefill-tokens` that is too small",
)
TOKEN_GAP = Description(
    "vinoqueue_inter_token_latency_seconds",
    "histogram",
    "Time between consecutive tokens of a choice, as they arrive at the replica.",
    _MODEL,
    "text appears slowly or stalls",
)
DURATION = Description(
    "vinoqueue_request_duration_seconds",
    "histogram",
    "Time from the arrival of a request to its end.",
    _MODEL,
    "planning capacity",
)
PROMPT_TOKENS = Description(
    "vinoqueue_prompt_tokens", "counter", "Prompt tokens of accepted requests.", _MODEL, "allocating cost"
)
CACHED_TOKENS = Description(
    "vinoqueue_cached_prompt_tokens",
    "counter",
    "Prompt tokens that the prefix cache supplied, as in the responses' usage. Workers without access to their "
    "model's logits count none.",
    _MODEL,
)
COMPLETION_TOKENS = Description(
    "vinoqueue_completion_tokens", "counter", "Tokens relayed to clients.", _MODEL, "watching throughput"
)
KEY_REQUESTS = Description(
    "vinoqueue_key_requests",
    "counter",
    "Accepted requests that have ended, by API key.",
    _KEY,
    optional=_BY_KEY,
)
KEY_PROMPT_TOKENS = Description(
    "vinoqueue_key_prompt_tokens", "counter", "Prompt tokens of accepted requests.", _KEY, optional=_BY_KEY
)
KEY_COMPLETION_TOKENS = Description(
    "vinoqueue_key_completion_tokens", "counter", "Tokens relayed to clients.", _KEY, optional=_BY_KEY
)
MIGRATIONS = Description(
    "vinoqueue_migrations",
    "counter",
    "Jobs that continued in another attempt, by `reason`: `worker_lost` (the lease expired), `worker_draining`, "
    "`engine_lost` (the worker replaced its engine process) or `preempted` (it left its slot to another "
    "request or key). Counted when the request ends.",
    ("model", "reason"),
    "streams stall; workers or engines die",
)
ROUTED = Description(
    "vinoqueue_prefix_routed_jobs",
    "counter",
    "Jobs with long prompts, by route: `followed` to a worker that has the prefix cached, `diverted` to another "
    "worker because of the load, `new` if no worker has the prefix, `waited` if no worker had a free slot.",
    ("model", "route"),
    "long prompts start slowly",
)
CONNECTION_REFUSALS = Description(
    "vinoqueue_connection_refusals",
    "counter",
    "Requests that were refused before they were complete, by status code: such as those of other protocols, or too "
    "large. The log has their address and a guess.",
    ("status",),
    "clients get responses that no other metric counts",
)
IMAGE_SECONDS = Description(
    "vinoqueue_image_load_seconds",
    "histogram",
    "Time to read an image, by source: `data` (URL), `download` or `local` (file).",
    _SOURCE,
    "requests with images start slowly",
)
IMAGE_BYTES = Description("vinoqueue_image_bytes", "counter", "Bytes of the images that were read.", _SOURCE)
IMAGE_FAILURES = Description(
    "vinoqueue_image_failures",
    "counter",
    "Images that could not be read. Their requests get a 400.",
    _SOURCE,
    "downloads fail",
)
BATCH_LINES = Description(
    "vinoqueue_batch_lines",
    "counter",
    "Batch requests with a result, by `outcome`: `completed` or `failed`. They also count in the metrics of "
    "requests and tokens, but not in histograms.",
    ("outcome",),
    "a batch is slow",
)
ENDED_BATCHES = Description(
    "vinoqueue_ended_batches", "counter", "Batches that have ended, by status.", ("status",), "batches fail"
)
UNFINISHED_BATCHES = Description(
    "vinoqueue_unfinished_batches", "gauge", "Unfinished batches of the whole service.", (), "batches pile up"
)
OPEN = Description("vinoqueue_open_answers", "gauge", "Requests in flight on this replica.", look="draining takes long")
FRAMES = Description(
    "vinoqueue_frames",
    "counter",
    "Frames received from workers.",
    look="tokens are generated, but no frames arrive",
)
DROPPED_LINES = Description(
    "vinoqueue_log_lines_dropped",
    "counter",
    "Lines that this replica could not log, because nobody read its standard error.",
    look="the log has gaps",
)
STORE_UP = Description(
    "vinoqueue_store_up", "gauge", "1 while the store responds to this replica, else 0.", look="every response is 503"
)
READY = Description(
    "vinoqueue_ready",
    "gauge",
    "1 while this replica can serve a model, else 0, as `/ready` says. A replica that drains keeps its value.",
    look="every response is 503 or 404",
)

WAITING = Description(
    "vinoqueue_queue_waiting",
    "gauge",
    "Waiting jobs.",
    _MODEL,
    "autoscaling: with `claimed`, the signal to add workers",
)
CLAIMED = Description(
    "vinoqueue_queue_claimed", "gauge", "Jobs that workers hold.", _MODEL, "it stays above 0 without clients"
)
DRAIN_RATE = Description(
    "vinoqueue_queue_drain_rate",
    "gauge",
    "Jobs that leave the queue per second while jobs wait; absent until known.",
    _MODEL,
    "requests are refused for their estimated wait",
)
WORKERS = Description(
    "vinoqueue_workers",
    "gauge",
    "Registered workers, by `status`: `loading`, `serving`, `draining` or `failing`.",
    ("model", "status"),
    "requests get 503",
)
KIND = Description("vinoqueue_model_kind", "gauge", "1: `generate`, `embed` or `rerank`.", ("model", "kind"))
SLOTS = Description("vinoqueue_worker_slots", "gauge", "Slots of the worker.", _WORKER)
USED = Description("vinoqueue_worker_slots_used", "gauge", "Slots in use.", _WORKER, "load is uneven")
BATCH = Description(
    "vinoqueue_worker_batch_size",
    "gauge",
    "Jobs in the engine's last step: the actual size of the batch.",
    _WORKER,
    "slots are used but the batch is small",
)
ENGINE_REQUESTS = Description(
    "vinoqueue_worker_engine_requests",
    "gauge",
    "Jobs that the engine holds.",
    _WORKER,
    "it disagrees with the slots in use",
)
CACHE_USAGE = Description(
    "vinoqueue_worker_kv_cache_usage_ratio",
    "gauge",
    "Share of the KV cache in use, 0 to 1, as reported by the engine.",
    _WORKER,
    "requests end with `kv_cache_exhausted`",
)
TOKEN_RATE = Description(
    "vinoqueue_worker_tokens_per_second", "gauge", "Generated tokens per second, over the last seconds.", _WORKER
)
STEPS = Description("vinoqueue_worker_steps", "counter", "Engine steps.", _WORKER)
TOKENS = Description("vinoqueue_worker_tokens", "counter", "Generated tokens.", _WORKER)
CLAIMS = Description("vinoqueue_worker_requests", "counter", "Claimed jobs.", _WORKER)
LOST_LOGITS = Description(
    "vinoqueue_worker_lost_logits",
    "counter",
    "Requests that failed because their logits could not be matched to them.",
    _WORKER,
    "it rises at all",
)
PREEMPTIONS = Description(
    "vinoqueue_worker_preemptions",
    "counter",
    "Preemptions of batch requests for the first tokens of other requests.",
    _WORKER,
    "batches are slow",
)
DRAFTED = Description(
    "vinoqueue_worker_drafted_tokens",
    "counter",
    "Draft tokens of speculative decoding that the model has verified.",
    _WORKER,
)
ACCEPTED = Description(
    "vinoqueue_worker_accepted_tokens",
    "counter",
    "Draft tokens that the model has accepted.",
    _WORKER,
    "it is below a fifth of the draft tokens: speculation costs more than it saves",
)
RESTARTS = Description(
    "vinoqueue_worker_engine_restarts", "counter", "Engine processes replaced.", _WORKER, "it rises at all"
)
MODEL_STATE = Description(
    "vinoqueue_model_state",
    "gauge",
    "1 for the `state` of a model of the nodes' catalogues: `loaded`, `loading`, `unloading`, `unloaded` or "
    "`failed`; 0 for the others.",
    ("model", "state"),
    "a model cannot be loaded",
)
MODEL_WAIT = Description(
    "vinoqueue_model_wait_seconds",
    "gauge",
    "Time for which requests have been waiting for a model that no worker serves, 0 without. The load has begun or "
    "memory is missing.",
    _MODEL,
    "first requests are slow; autoscaling of nodes",
)
NODE_MEMORY = Description(
    "vinoqueue_node_memory_bytes",
    "gauge",
    "Memory that the models of a node may take, of the host (`--memory`) and of discrete GPUs (`--device-memory`).",
    ("node", "device"),
)
MODEL_MEMORY = Description(
    "vinoqueue_model_memory_bytes",
    "gauge",
    "Memory that a loaded model takes on a node, of the host and of a discrete GPU.",
    (*_PLACED, "device"),
    "memory is full",
)
LOAD_SECONDS = Description(
    "vinoqueue_model_load_seconds", "gauge", "Time that the last load of a model took on a node.", _PLACED
)
LOADS = Description("vinoqueue_model_loads", "counter", "Loads of a model that a node has begun.", _PLACED)
LOAD_FAILURES = Description(
    "vinoqueue_model_failures",
    "counter",
    "Workers that ended by themselves, on loading a model or later.",
    _PLACED,
    "it rises at all",
)
UNLOADS = Description(
    "vinoqueue_model_unloads",
    "counter",
    "Unloads of a model, by `cause`: `idle`, `swap` (makes room for another model), `changed` (its entry), `operator`, "
    "`failed` or `stop` (of the node).",
    (*_PLACED, "cause"),
    "models displace each other",
)
RESIDENCE = Description(
    "vinoqueue_model_resident_seconds", "counter", "Time for which a node has had a model loaded.", _PLACED
)

VLLM_WAITING = Description("vllm:num_requests_waiting", "gauge", "Waiting jobs.", ("model_name",))
VLLM_RUNNING = Description("vllm:num_requests_running", "gauge", "Jobs that workers hold.", ("model_name",))
VLLM_CACHE_USAGE = Description(
    "vllm:kv_cache_usage_perc",
    "gauge",
    "Share of the KV cache in use, 0 to 1: the mean of the model's serving workers.",
    ("model_name",),
)
VLLM_CACHE_CONFIG = Description(
    "vllm:cache_config_info",
    "gauge",
    "Always 1. `num_gpu_blocks` times `block_size` is the number of tokens that the KV caches of the model's serving "
    "workers hold together.",
    ("model_name", "block_size", "num_gpu_blocks"),
)
VLLM_LORA = Description(
    "vllm:lora_requests_info",
    "gauge",
    "Unix time of the last reading of the registry. There are no LoRA adapters, so the labels are empty or 0.",
    ("max_lora", "running_lora_adapters", "waiting_lora_adapters"),
)

CATALOGUE = tuple(value for value in list(globals().values()) if isinstance(value, Description))
"""All metrics, in the order of the documentation."""
