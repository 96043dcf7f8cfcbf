"""Every setting of the service. Each field is a command line flag and an environment variable.

``redis_url`` is ``--redis-url`` and ``VINOQUEUE_REDIS_URL``: one declaration here makes the flag, the
variable, its help text, its check and its row in the README's table.
"""

import socket
from typing import Annotated, Literal

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    TypeAdapter,
    ValidationError,
    field_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

ENV_PREFIX = "VINOQUEUE_"

SECRETS = frozenset({"api_keys", "redis_url"})
"""Settings that hold secrets. The environment variable with ``_FILE`` behind its name takes the path of a file with the
value instead, as in the official Docker images."""

Port = Annotated[int, Field(ge=0, le=65535)]
LogLevel = Literal["debug", "info", "warning", "error"]
PluginValue = bool | int | float | str
"""The value of a property of an OpenVINO device."""

_PLUGIN_CONFIG = TypeAdapter(dict[str, PluginValue])


def _check_plugin_config(text: str) -> str:
    try:
        _PLUGIN_CONFIG.validate_json(text or "{}", strict=True)
    except ValidationError:
        raise ValueError("not a JSON object of texts, numbers and booleans") from None
    return text


def _upper_case(text: str) -> str:
    return text.upper()


class Settings(BaseSettings):
    """What every process needs."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, frozen=True, extra="ignore")

    redis_url: str = Field(
        "redis://127.0.0.1:6379/0",
        description="Redis or Valkey that API and workers share: redis://, rediss:// (TLS) or unix://, "
        "with user, password and database number as usual.",
    )
    log_level: LogLevel = Field("info", description="Least severe log lines to print.")
    lease: PositiveFloat = Field(
        2.0,
        description="Seconds that a worker's claims and presence hold without renewal; all processes need the same.",
    )


class ApiSettings(Settings):
    """One API replica."""

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: Port = Field(8000, description="Port to listen on; 0 picks a free one.")
    max_queue: PositiveInt = Field(
        1000, description="Most requests of a model that may wait ahead of a new one; beyond, it gets a 429."
    )
    max_wait: PositiveFloat = Field(
        60.0,
        description="Seconds of waiting that a new request may expect at the rate at which the model's workers get on; "
        "beyond, it gets a 429.",
    )
    prefix_routing: bool = Field(
        True,
        description="Send requests whose prompts begin alike to the same worker where its load allows, so that its "
        "prefix cache spares their beginnings.",
    )
    queue_timeout: PositiveFloat = Field(
        120.0,
        description="Seconds that a request may wait for a worker to take it; then 503. A key may have its own, and a "
        "request may ask for less in the header x-queue-timeout.",
    )
    max_choices: PositiveInt = Field(
        128, description="Most texts (prompts times choices) that one request may have generated; more gets a 400."
    )
    max_choice_bytes: PositiveInt = Field(
        32 * 2**20,
        description="Maximum size of a request in the queue in bytes, times its choices; larger requests get 413.",
    )
    max_body: PositiveInt = Field(4 * 2**20, description="Largest request body in bytes; more gets a 413.")
    header_timeout: PositiveFloat = Field(
        15.0, description="Seconds that a client may take to send the head of a request; then it is disconnected."
    )
    body_timeout: PositiveFloat = Field(30.0, description="Seconds that a client may take to send its request body.")
    client_timeout: PositiveFloat = Field(
        30.0, description="Seconds that a client may take nothing of what is sent to it; then its connection is cut."
    )
    max_connections: PositiveInt = Field(
        16_384,
        description="Open client connections; a new one beyond replaces an idle one or gets a 503. Lowered to what the "
        "limit on open files allows.",
    )
    max_connections_per_address: Literal["auto"] | NonNegativeInt = Field(
        "auto",
        description="Open connections of one client address (IPv6: /64 network); more get a 503. 'auto' is half of "
        "--max-connections, 0 is no bound: set it behind a proxy, whose clients all have its address.",
    )
    allowed_hosts: str = Field(
        "",
        description="Host names by which clients may address the API, separated by commas; '*' allows any, and IP "
        "addresses always are. Empty allows loopback names when listening on a loopback address, else any.",
    )
    worker_grace: NonNegativeFloat = Field(
        10.0, description="Seconds that accepted requests wait for a worker after the last one has gone; then 503."
    )
    request_timeout: PositiveFloat = Field(
        600.0, description="Seconds that a request may take as a whole; then it ends with an error."
    )
    store_ttl: PositiveFloat = Field(86_400.0, description="Seconds that completions with 'store' true are kept.")
    store_limit: PositiveInt = Field(1000, description="Most stored completions of one API key; beyond, the oldest go.")
    drain: NonNegativeFloat = Field(
        30.0, description="Seconds that answers in flight may take to end after SIGTERM; then they end with an error."
    )
    api_keys: str = Field(
        "",
        description="Keys that open the API, apart by commas, for simple set-ups; give them by the environment, as "
        "flags are seen in process lists.",
    )
    keys_file: str = Field("", description="TOML file of hashed keys; read again when it changes (docs/limits.md).")
    require_keys: bool = Field(
        False,
        description="Refuse requests without a key, and don't start without any key; otherwise the API is open until "
        "the first key is made.",
    )
    open_metrics: bool = Field(True, description="Serve /metrics without a key where keys are in force.")


class EngineSettings(Settings):
    """The model and the engine that runs it."""

    model: str = Field(
        "default",
        description="[NAME=]SOURCE of the model: a GGUF file, an OpenVINO IR folder, a Hugging Face id, or 'default' "
        "for the SmolLM2-135M-Instruct that is installed along.",
    )
    engine: Literal["openvino", "simulated"] = Field(
        "openvino", description="What generates: OpenVINO GenAI, or a simulation for tests and load tests."
    )
    device: str = Field("CPU", description="OpenVINO device: CPU, GPU, NPU, AUTO, or a form such as GPU.1.")
    max_batch: Literal["auto"] | PositiveInt = Field(
        "auto",
        description="Requests that the worker generates for at the same time. 'auto' is one for every 512 tokens that "
        "the KV cache holds, from 4 to 32, or to 64 on a GPU.",
    )
    cache_size: Literal["auto"] | NonNegativeInt = Field(
        "auto",
        description="Memory for the KV cache in GB; 0 lets it grow as needed. 'auto' is a quarter of the free memory "
        "on a CPU, from 1 to 16 GB, and 0 on other devices.",
    )
    prefill_tokens: PositiveInt = Field(
        256,
        description="Most tokens of prompts in one step: with more, a long prompt may be read sooner, but running "
        "answers wait longer.",
    )
    plugin_config: str = Field(
        "",
        description='OpenVINO properties of the device as a JSON object, such as {"INFERENCE_NUM_THREADS": 8}; what '
        "'--precision exact' needs goes before them.",
    )
    max_context: NonNegativeInt = Field(
        0, description="Most tokens of prompt and answer together; 0 takes the model's own limit."
    )
    prefix_caching: bool = Field(True, description="Keep the KV cache of prompts for later ones that begin alike.")
    prompt_lookup: bool = Field(
        False, description="Guess tokens by looking the prompt up: faster for few requests at a time, slower for many."
    )
    draft_model: str = Field(
        "",
        description="OpenVINO IR folder of a small model that guesses tokens for the large one; empty is none. It does "
        "without prefix caching.",
    )
    weights: Literal["auto", "int8", "original"] = Field(
        "auto",
        description="'int8' serves a GGUF file with int8 weights, made at the first start and kept in the user's cache "
        "folder; 'auto' does so on CPUs for files of up to 256 MB, which it makes faster, but not with '--precision "
        "exact'.",
    )
    precision: Literal["fast", "exact"] = Field(
        "fast",
        description="'exact' computes in f32 without dynamic quantisation, so that a greedy text does not depend on "
        "what else is in the batch, and a sampled one hardly does.",
    )
    sim_step: NonNegativeFloat = Field(0.02, description="Simulated engine: seconds a step takes.")
    sim_tokens: PositiveInt = Field(64, description="Simulated engine: tokens of an answer where max_tokens allows.")
    sim_load: NonNegativeFloat = Field(0.0, description="Simulated engine: seconds that loading takes.")
    sim_context: PositiveInt = Field(8192, description="Simulated engine: context length in tokens.")

    _device_is_upper_case = field_validator("device")(_upper_case)
    _plugin_config_is_json = field_validator("plugin_config")(_check_plugin_config)

    @property
    def caches_prefixes(self) -> bool:
        """Whether prompts' beginnings are kept: not beside a draft model.

        Sampled tokens that turn a draft's down make OpenVINO GenAI 2026.4.1 throw in its prefix cache.
        """
        return self.prefix_caching and not self.draft_model

    @property
    def plugin_properties(self) -> dict[str, PluginValue]:
        """``plugin_config``, read."""
        return _PLUGIN_CONFIG.validate_json(self.plugin_config or "{}", strict=True)


class WorkerSettings(EngineSettings):
    """One worker."""

    served_model_name: str = Field(
        "",
        json_schema_extra={"several": True},
        description="One or more names under which clients ask for the model; answers carry the first one. Empty: the "
        "NAME in '--model', or the one made from its source.",
    )
    chat_template: str = Field(
        "", description="File with a Jinja chat template that replaces the model's own; empty uses the model's."
    )
    worker_id: str = Field("", description="Name of the worker in status and logs; empty makes one from host and pid.")
    node: str = Field(default_factory=socket.gethostname, description="Host name to advertise.")
    schema_bytes: PositiveInt = Field(
        65_536, description="Largest JSON schema or grammar in a request, in bytes; more gets a 400."
    )
    grammar_seconds: PositiveFloat = Field(
        0.25,
        description="Seconds that compiling a request's grammar may take, for which all others wait; more gets a 400.",
    )
    poll: PositiveFloat = Field(1.0, description="Seconds between looks at the queue when no wake-up has come.")
    drain: NonNegativeFloat = Field(
        30.0, description="Seconds that running requests may take to end after SIGTERM; then other workers go on."
    )
    step_timeout: PositiveFloat = Field(
        15.0,
        description="Most seconds that a step of the engine may take; then it counts as hung and is replaced. It may "
        "take no more than ten times the longest step of the last ten minutes either, or 3 s if that is more, except "
        "with a prompt longer than all of these minutes.",
    )
    max_lost_workers: PositiveInt = Field(
        5, description="Workers that may vanish with a request before it is refused as one that kills them."
    )
    log_poison_requests: bool = Field(
        False,
        description="Log the whole of a request that engines or workers died of, prompts included; otherwise its sizes "
        "and settings only.",
    )

    @property
    def served_names(self) -> tuple[str, ...]:
        """``served_model_name``, taken apart at commas and spaces, each name once."""
        return tuple(dict.fromkeys(self.served_model_name.replace(",", " ").split()))


class UpSettings(ApiSettings, WorkerSettings):
    """Everything on one machine: store, worker and API."""

    redis_url: str = Field("", description="Redis or Valkey to use; empty starts an embedded Valkey.")
    log_level: LogLevel = Field("warning", description="Least severe log lines to print, beside the progress.")
    drain: NonNegativeFloat = Field(5.0, description="Seconds that requests in flight may take to end after a signal.")
