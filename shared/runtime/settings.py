"""All settings of the service. Each field is a command line flag and an environment variable.

``redis_url`` is ``--redis-url`` and ``VINOQUEUE_REDIS_URL``. The declaration of a field defines the flag, the variable,
the help text, the validation and the row in docs/settings.md.
"""

import re
import socket
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ByteSize,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    TypeAdapter,
    field_validator,
)

from shared.redis.url import parse_url
from shared.runtime.plugin_config import PluginValue, parse_plugin_config

ENV_PREFIX = "VINOQUEUE_"

SECRETS = frozenset({"api_keys", "redis_url"})
"""Settings that hold secrets. The environment variable with the suffix ``_FILE`` takes the path of a file with the
value instead, as in the official Docker images."""

REMOVED = {
    "max_choices": "a request generates at most 128 texts",
    "max_answer_bytes": "a response has at most 32 MiB",
    "max_choice_bytes": "a request multiplied by its choices has at most 32 MiB",
    "media_redirects": "up to 3 redirects are followed, each of which must lead to an allowed host",
    "media_timeout": "an image is downloaded within 5 s",
    "header_timeout": "a request head is received within 15 s, or --body-timeout if that is less",
    "upload_timeout": "a file is uploaded within 10 minutes",
    "store_limit": "--store-bytes bounds stored responses, at most 1,000 for each key",
    "max_files": "--max-files-bytes bounds files, at most 1,000 for each key",
    "min_free_disk": "uploads leave 1 GiB of the disk free, and get 503 beyond it",
    "max_batches": "an API key has at most 100 unfinished batches",
    "vllm_metric_names": "the metrics with vLLM's names are always served",
    "sim_tokens": "put [[tokens N]] into the simulated model's source",
    "sim_load": "put [[load SECONDS]] into the simulated model's source",
    "sim_context": "put [[context N]] into the simulated model's source",
    "max_image_pixels": "an image file has at most 64 megapixels",
    "max_image_bytes": "an image file has at most 10 MiB",
    "schema_bytes": "a JSON schema or grammar has at most 64 KiB",
    "batch_pause": "batch requests make room for others by preemption and --batch-reserve",
    "max_lost_workers": "a request is refused after 5 lost workers",
    "min_residence": "--swap-wait is also the minimum time for which a model with requests stays loaded",
}
"""Settings that are gone, and what applies instead. One that is still set is a warning."""

Port = Annotated[int, Field(ge=0, le=65535)]
LogLevel = Literal["debug", "info", "warning", "error"]


def _check_store_url(text: str) -> str:
    parse_url(text)
    return text


def _check_optional_store_url(text: str) -> str:
    return text and _check_store_url(text)


def _check_plugin_config(text: str) -> str:
    parse_plugin_config(text)
    return text


def _no_less_than_1_mb(size: ByteSize) -> ByteSize:
    if 0 < size < 1_000_000:
        raise ValueError(f"{size:d} bytes are too few for a model; give the unit, as in 24GB")
    return size


MemorySize = Annotated[ByteSize, AfterValidator(_no_less_than_1_mb)]
"""Bytes of memory for models, as a number with a unit; 0 where none is given."""

_DEVICE_MEMORY = re.compile(r"(GPU(?:\.\d+)?)=([^,]+)")
_bytes = TypeAdapter(MemorySize)


def _device_memory(text: str) -> dict[str, int]:
    found = {}
    for part in filter(None, text.replace(" ", "").split(",")):
        if (match := _DEVICE_MEMORY.fullmatch(part)) is None:
            raise ValueError(f"'{part}' is not of the form GPU.0=16GB")
        name = match[1] if "." in match[1] else f"{match[1]}.0"
        found[name] = int(_bytes.validate_python(match[2]))
    return found


def _check_device_memory(text: str) -> str:
    _device_memory(text)
    return text


def _upper_case(text: str) -> str:
    return text.upper()


class Settings(BaseModel):
    """Settings of all processes."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        allow_inf_nan=False,
        defer_build=True,
        hide_input_in_errors=True,  # of a URL with a password
    )

    redis_url: Annotated[str, AfterValidator(_check_store_url)] = Field(
        "redis://127.0.0.1:6379/0",
        description="URL of the Redis or Valkey store: redis://, rediss:// (TLS), valkey://, valkeys:// (TLS) or "
        "unix://, with optional user, password (percent-encoded), database number and options (docs/security.md).",
    )
    log_level: LogLevel = Field("info", description="Minimum level of log lines to print.")
    log_format: Literal["text", "json"] = Field("text", description="Format of log lines: text, or a JSON object each.")
    otlp_traces_endpoint: str = Field(
        "",
        description="OTLP over HTTP endpoint for traces, such as http://collector:4318/v1/traces; empty uses "
        "OpenTelemetry's own variables, and without those there are no traces (docs/tracing.md).",
    )
    lease: PositiveFloat = Field(
        2.0,
        description="Lease duration in seconds, after which a silent worker loses its jobs; must be the same for all "
        "processes.",
    )


class ApiSettings(Settings):
    """Settings of an API replica."""

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: Port = Field(8000, description="Port to listen on; 0 picks a free one.")
    max_queue: PositiveInt = Field(
        1000,
        description="Maximum number of requests waiting ahead of a new one for the same model; beyond it, the new one "
        "gets 429; lower it to refuse sooner.",
    )
    max_queue_bytes: PositiveInt = Field(
        256 * 2**20,
        description="Maximum size in bytes of the unfinished requests for the same model, without images; beyond it, "
        "or beyond a key's share, new ones get 429.",
    )
    max_wait: PositiveFloat = Field(
        60.0,
        description="Maximum estimated queue wait in seconds; longer waits get 429, for clients that would rather go "
        "elsewhere.",
    )
    prefix_routing: bool = Field(
        True,
        description="Route prompts with a shared prefix to the worker that has it cached, where load allows; off, "
        "workers are loaded evenly.",
    )
    queue_timeout: PositiveFloat = Field(
        120.0,
        description="Maximum time in the queue in seconds, then 503; an API key may have its own, and the "
        "x-queue-timeout header may ask for less.",
    )
    first_byte_after: PositiveFloat = Field(
        50.0,
        description="Time in seconds after which a stream that waits for its first token gets its status and a "
        "comment, before a proxy gives up; later errors are events in the stream.",
    )
    default_max_tokens: NonNegativeInt = Field(
        0,
        description="Maximum number of tokens of each output whose request sets none; an API key may have its own, and "
        "0 is the rest of the context.",
    )
    max_body: PositiveInt = Field(
        4 * 2**20,
        description="Maximum size of a request body in bytes; larger bodies get 413, and long contexts may need more.",
    )
    max_media_body: PositiveInt = Field(
        32 * 2**20, description="Maximum size of the body of a request with images, in bytes; larger bodies get 413."
    )
    max_images: PositiveInt = Field(16, description="Maximum number of images in a request; more get 400.")
    max_media_bytes: PositiveInt = Field(
        256 * 2**20,
        description="Maximum size in bytes of the images of the unfinished requests for the same model; beyond it, or "
        "beyond a key's share, new ones get 429.",
    )
    media_domains: str = Field(
        "",
        description="Comma-separated hosts from which images are downloaded, such as 'example.org,*.example.com', or "
        "'*' for any; empty disables downloads.",
    )
    media_private_addresses: bool = Field(
        False, description="Also download images from non-public addresses, such as those of a local network."
    )
    allowed_local_media_path: str = Field(
        "", description="Folder of the images that /v3 requests may name by path; empty allows none."
    )
    keep_alive_timeout: PositiveFloat = Field(
        75.0,
        description="Disconnect clients without a request for this long, in seconds; more than the idle timeout of a "
        "load balancer, so that it closes first.",
    )
    body_timeout: PositiveFloat = Field(
        30.0,
        description="Maximum time to receive a request body, in seconds; slower bodies get 408, and slow lines may "
        "need more.",
    )
    client_timeout: PositiveFloat = Field(
        30.0, description="Disconnect clients that stop reading for this long, in seconds."
    )
    max_connections: PositiveInt = Field(
        16_384,
        description="Maximum number of open client connections, capped by the limit on open files; a new one beyond it "
        "replaces an idle one or gets 503.",
    )
    max_connections_per_address: Literal["auto"] | NonNegativeInt = Field(
        "auto",
        description="Maximum number of open connections per client address (IPv6: /64 network), then 503; 'auto' is "
        "half of --max-connections, and 0, for use behind a proxy, is unlimited.",
    )
    allowed_hosts: str = Field(
        "",
        description="Comma-separated host names that clients may use in addition to IP addresses, or '*' for any; "
        "empty allows only loopback names on a loopback address, and any name elsewhere.",
    )
    cors_origins: str = Field(
        "",
        description="Comma-separated origins of web pages that may use this API from browsers, such as "
        "'https://app.example.org', or '*' for any; empty allows none but the API's own page.",
    )
    web: bool = Field(True, description="Serve the web page at /; off, the API is all that there is.")
    worker_grace: NonNegativeFloat = Field(
        10.0,
        description="Time that accepted requests wait for a worker after the last one has gone, in seconds; then they "
        "get 503, so it should outlast a worker's restart.",
    )
    request_timeout: PositiveFloat = Field(
        600.0,
        description="Maximum duration of a request in seconds; longer requests end with an error, and slow hosts may "
        "need more.",
    )
    store_ttl: PositiveFloat = Field(
        86_400.0, description="Retention of stored completions and responses, in seconds, as privacy rules may ask for."
    )
    store_bytes: PositiveInt = Field(
        64 * 2**20,
        description="Maximum size in bytes of the stored completions and responses of an API key, with all that they "
        "keep in the store; the oldest make room for new ones.",
    )
    store_total_bytes: PositiveInt = Field(
        2**30,
        description="Maximum size in bytes of the stored completions and responses of all API keys; the oldest of the "
        "key that has most make room for new ones.",
    )
    files_dir: str = Field(
        "",
        description="Folder for uploaded files and results of batches, the same for all API replicas, or "
        "s3://BUCKET/PREFIX (needs the extra 's3'); empty is vinoqueue/files in the user's data folder.",
    )
    max_file_bytes: PositiveInt = Field(
        200 * 2**20,
        description="Maximum size of an uploaded file in bytes; larger ones get 413, and large batches may need more.",
    )
    max_files_bytes: PositiveInt = Field(
        10 * 2**30, description="Maximum size of the uploaded files of an API key together in bytes; more get 400."
    )
    drain_delay: NonNegativeFloat = Field(
        5.0,
        description="Time after SIGTERM in seconds in which the replica fails /ready/replica and still serves new "
        "requests, until load balancers have noticed.",
    )
    drain: NonNegativeFloat = Field(
        30.0,
        description="Time for running requests to finish after SIGTERM and --drain-delay, in seconds; the rest end "
        "with an error.",
    )
    api_keys: str = Field(
        "",
        description="Comma-separated API keys; prefer the environment variable.",
    )
    keys_file: str = Field("", description="TOML file of hashed API keys, reloaded when it changes (docs/limits.md).")
    require_keys: bool = Field(
        False,
        description="Refuse requests without an API key, and do not start while no key exists; otherwise the API is "
        "open until the first key is created.",
    )
    open_metrics: bool = Field(
        True, description="Serve /metrics and /health without an API key, even where requests need one."
    )
    metrics_by_key: bool = Field(
        False, description="Add counters of requests and tokens for each API key to /metrics, which shows their ids."
    )

    @property
    def max_request_body(self) -> int:
        """Maximum size of any request body in bytes."""
        return max(self.max_body, self.max_media_body)


class EngineSettings(Settings):
    """Settings of the model and its engine."""

    model: str = Field(
        "default",
        description="[NAME=]SOURCE of the model: a GGUF file, an OpenVINO IR folder, a Hugging Face id, or 'default' "
        "for the bundled SmolLM2-135M-Instruct.",
    )
    engine: Literal["auto", "batched", "stateful", "openvino", "simulated"] = Field(
        "auto",
        description="Inference engine: 'batched' computes many requests in a step, 'stateful' one at a time, and "
        "'auto' (formerly 'openvino') is stateful on NPUs and where batched can't load the model, and 'simulated' is a "
        "simulation for tests and load tests.",
    )
    device: str = Field("CPU", description="OpenVINO device: CPU, GPU, NPU, AUTO, or a form such as GPU.1.")
    max_batch: Literal["auto"] | PositiveInt = Field(
        "auto",
        description="Maximum number of sequences generated at the same time; 'auto' is one per 512 tokens of KV cache, "
        "from 4 to 32, or to 64 on a GPU.",
    )
    cache_size: Literal["auto"] | NonNegativeInt = Field(
        "auto",
        description="KV cache size in GB; 0 grows as needed, and 'auto' is a quarter of the free memory on a CPU, from "
        "1 to 16 GB, and 0 on other devices.",
    )
    prefill_tokens: PositiveInt = Field(
        256,
        description="Maximum number of prompt tokens per step; higher values prefill long prompts sooner but delay "
        "running requests.",
    )
    plugin_config: str = Field(
        "",
        description='OpenVINO device properties as a JSON object, such as {"INFERENCE_NUM_THREADS": 8}; those set by '
        "'--precision exact' take precedence.",
    )
    max_context: NonNegativeInt = Field(
        0,
        description="Maximum number of prompt and output tokens together; 0 is the model's own limit; less needs less "
        "memory for each stream.",
    )
    prefix_caching: bool = Field(
        True,
        description="Keep the KV cache of prompts for later ones with a shared prefix; without it, no response time "
        "tells what other clients have sent.",
    )
    prompt_lookup: bool = Field(
        False, description="Use prompt lookup decoding: faster for few concurrent requests, slower for many."
    )
    draft_model: str = Field(
        "",
        description="OpenVINO IR folder of a draft model or an EAGLE-3 head for speculative decoding, faster for few "
        "concurrent requests; the KV cache then grows as needed, and the default of '--max-batch' is 4.",
    )
    weights: Literal["auto", "int8", "original"] = Field(
        "auto",
        description="Weight format of GGUF files: 'int8' converts at the first start and caches the result, 'original' "
        "does not, and 'auto' converts files of up to 256 MB on CPUs, and of up to 3 GB on up to 16 CPUs with "
        "AMX if there is room, unless '--precision exact' is set.",
    )
    precision: Literal["fast", "exact"] = Field(
        "fast",
        description="'exact' computes in f32 without dynamic quantisation, so that greedy output does not depend on "
        "the rest of the batch; 'fast' does not guarantee that.",
    )
    logits: Literal["auto", "on", "off"] = Field(
        "auto",
        description="Serve top_logprobs, logit_bias, allowed_token_ids, bad_words, thinking_token_budget and log "
        "probabilities of prompts, which need the model's logits; 'auto' is on for CPUs, except with a GGUF file "
        "above 256 MB.",
    )
    sim_step: NonNegativeFloat = Field(0.02, description="Simulated engine: duration of a step in seconds.")

    _device_is_upper_case = field_validator("device")(_upper_case)
    _plugin_config_is_json = field_validator("plugin_config")(_check_plugin_config)

    @property
    def plugin_properties(self) -> dict[str, PluginValue]:
        """``plugin_config``, decoded."""
        return parse_plugin_config(self.plugin_config)


class WorkerSettings(EngineSettings):
    """Settings of a worker."""

    served_model_name: str = Field(
        "",
        json_schema_extra={"several": True},
        description="One or more names of the model for clients, the first of which is used in responses; empty takes "
        "NAME from '--model' or derives one from its source.",
    )
    chat_template: str = Field("", description="File with a Jinja chat template that replaces the model's own.")
    self_test: Literal["on", "warn", "off"] = Field(
        "on",
        description="Test the tokenizer when a model is loaded: special tokens in prompts, texts in twelve scripts and "
        "the end token; 'on' refuses a model whose chats would be wrong, and 'warn' serves it.",
    )
    tool_parser: str = Field(
        "auto",
        description="Format of the model's tool calls, by our name or that of OpenVINO Model Server or vLLM; 'auto' is "
        "what its chat template shows, and with 'none' calls stay in the content.",
    )
    reasoning_parser: str = Field("auto", description="Format of the model's reasoning, in the same way.")
    worker_id: str = Field(
        "",
        description="Name of the worker in status and logs; set it for a name that outlasts restarts; empty derives "
        "one from host and process id.",
    )
    node: str = Field(
        default_factory=socket.gethostname,
        description="Host name to advertise in the registry, where a container's own says nothing.",
    )
    image_pixels: PositiveInt = Field(
        2**18,
        description="Maximum number of pixels of all images of a request together; larger images are scaled down, "
        "because running requests wait while images are encoded.",
    )
    grammar_seconds: PositiveFloat = Field(
        0.25,
        description="Maximum time to compile a request's grammar, in seconds; slower ones get 400, and large schemas "
        "may need more.",
    )
    batch_reserve: Literal["auto"] | NonNegativeInt = Field(
        "auto",
        description="Number of slots that batch requests leave free for other requests; more shortens others' waits "
        "during a batch, and 'auto' is an eighth of the slots and at least one.",
    )
    poll: PositiveFloat = Field(
        1.0, description="Polling interval of the queue in seconds, used when no wake-up arrives."
    )
    drain: NonNegativeFloat = Field(
        30.0,
        description="Time for running requests to finish after SIGTERM, in seconds; the rest migrate to other workers.",
    )
    termination_log: str = Field(
        "",
        description="File to write the reason to when the worker cannot serve its model, such as /dev/termination-log "
        "in Kubernetes; a node's workers have one each.",
    )
    health_file: str = Field(
        "",
        description="File for probes of containers: a worker writes its status to it at each heartbeat, and a node "
        "'serving'; /tmp/health in the image.",
    )
    step_timeout: PositiveFloat = Field(
        15.0,
        description="Maximum duration of an engine step in seconds, after which the engine counts as hung and is "
        "replaced; recent steps usually set a tighter limit (docs/fault-tolerance.md).",
    )
    log_poison_requests: bool = Field(
        False,
        description="Log poison requests in full, prompts included, instead of only their sizes and settings, to "
        "reproduce what they break.",
    )

    @property
    def served_names(self) -> tuple[str, ...]:
        """``served_model_name``, split at commas and spaces, without duplicates."""
        return tuple(dict.fromkeys(self.served_model_name.replace(",", " ").split()))


class NodeSettings(WorkerSettings):
    """Settings of a node. Those of a worker apply to all models whose entries do not set them."""

    models: str = Field(
        "",
        description="TOML file with the models to load by demand (docs/catalogue.md); read again when it changes.",
    )
    memory: MemorySize = Field(
        ByteSize(0),
        description="Memory that the models of this host may take together, such as 24GB; 0 is what is free when the "
        "node starts, less a tenth.",
    )
    device_memory: str = Field(
        "",
        description="Memory that the models on each discrete GPU may take together, such as GPU.0=16GB,GPU.1=8GB; by "
        "default what OpenVINO reports.",
    )
    swap_wait: NonNegativeFloat = Field(
        20.0,
        description="Time that requests wait for a model in seconds, after which it takes the memory of another that "
        "has requests and was loaded for as long.",
    )
    swap_drain: NonNegativeFloat = Field(
        5.0,
        description="Time for running requests to finish when a model is unloaded, in seconds; the rest go on when it "
        "is loaded again, or on another host.",
    )
    spread_wait: NonNegativeFloat = Field(
        10.0, description="Time that requests wait in seconds, after which another host loads their model as well."
    )

    _device_memory_has_sizes = field_validator("device_memory")(_check_device_memory)

    @property
    def device_budgets(self) -> dict[str, int]:
        """``device_memory`` in bytes by device."""
        return _device_memory(self.device_memory)


class UpSettings(ApiSettings, NodeSettings):
    """Settings of 'vinoqueue up'.

    It has all settings of an API replica, a worker and a node, some of them with other defaults.
    """

    redis_url: Annotated[str, AfterValidator(_check_optional_store_url)] = Field(
        "", description="URL of the Redis or Valkey store to use; empty starts an embedded Valkey."
    )
    log_level: LogLevel = Field("warning", description="Minimum level of log lines to print; progress is always shown.")
    drain_delay: NonNegativeFloat = Field(
        0.0,
        description="Time after SIGTERM in seconds in which the API fails /ready/replica and still serves new "
        "requests.",
    )
    drain: NonNegativeFloat = Field(
        5.0, description="Time for running requests to finish after SIGTERM or Ctrl-C, in seconds."
    )


def joined_reasons(errors: Iterable[Mapping[str, Any]]) -> str:
    """Return what is wrong with a value, by the ``errors`` of pydantic: one that may be a word or a number has two."""
    reasons = (str(error["msg"]).removeprefix("Value error, ") for error in errors)
    return " or ".join(reason[0].lower() + reason[1:] for reason in reasons)


def variable(name: str) -> str:
    """Return the environment variable of the settings field ``name``."""
    return ENV_PREFIX + name.upper()


def file_variable(name: str) -> str:
    """Return the environment variable that names a file with the value of the secret settings field ``name``."""
    return variable(name) + "_FILE"


def environment(settings: Settings, kind: type[Settings]) -> dict[str, str]:
    """Return the environment variables that pass a child the fields of ``settings`` that ``kind`` has.

    Settings are not passed as flags, because a Redis URL may contain a password and command lines are world-readable.
    """
    values = {name: getattr(settings, name) for name in kind.model_fields}
    given = {variable(name): str(value) for name, value in values.items()}
    # A secret read from a file is passed by value. Setting both variables would be an error.
    return given | {file_variable(name): "" for name in SECRETS}
