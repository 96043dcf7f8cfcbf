"""The registry: records of workers, API replicas, nodes and models in the store.

A process's record is renewed every third of its lease and expires with it, so a process that dies needs no cleanup.
Leases use the store's clock only. Unreadable records are skipped (see :mod:`shared.redis.records`).
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from itertools import islice
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, cast

import msgspec
from redis.asyncio import Redis

from shared.protocol.formats import ModelFormats
from shared.redis import keys
from shared.redis.raw_connection import Argument
from shared.redis.records import skipped_unreadable

_INDEX_TTL = 60
"""Seconds for which an id stays in the index after its record has expired."""

MODEL_TTL = 3600
"""Seconds for which a model is remembered after its last worker has gone."""

MAX_MODELS = 256
"""Maximum number of models that are remembered and read."""

_MAX_NAME = 512
"""Maximum length in bytes of the name of a model, worker or replica that is read; longer ones are cut."""

WorkerStatus = Literal["loading", "serving", "draining", "failing"]
FINDING_FILES = "looking for the model's files"
"""Detail of a worker that finds its model, and the beginning of that of one that downloads it. The worker's output
shows the progress of a download too."""
TEXT = "text"
IMAGE = "image"
GENERATE = "generate"
EMBED = "embed"
RERANK = "rerank"

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_Amount = Annotated[float, msgspec.Meta(ge=0, le=1e15)]


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A worker's registry record. Times are Unix seconds; rates are per second, over the last few seconds."""

    id: str
    host: str
    pid: _Count
    model: str
    """The model's own name, used for its queue and in responses."""
    status: str
    """A :data:`WorkerStatus`, or an unknown one of a newer version, which counts as alive but not serving."""
    engine: str
    """``batched``, ``stateful`` or ``simulated``; the value of ``--engine`` until a model is loaded."""
    device: str
    fingerprint: str
    started: _Amount
    slots: _Count
    used: _Count = 0
    context_length: _Count = 0
    max_prompt: _Count = 0
    """Maximum length of a prompt in tokens; 0 if only the context limits it."""
    cache_tokens: _Count = 0
    """Tokens that the KV cache holds."""
    cache_usage: _Amount = 0.0
    """Share of the KV cache in use, 0 to 1, as reported by the engine."""
    engine_requests: _Count = 0
    """Requests held by the engine."""
    batch: _Count = 0
    """Requests in the last step."""
    steps: _Count = 0
    tokens: _Count = 0
    lost_rows: _Count = 0
    """Requests that failed because their logits could not be matched to them."""
    preemptions: _Count = 0
    """How often a batch request was preempted."""
    drafted: _Count = 0
    """Draft tokens of speculative decoding that the model has verified."""
    accepted: _Count = 0
    """Those of them that it has accepted."""
    tokens_per_second: _Amount = 0.0
    requests: _Count = 0
    engine_restarts: _Count = 0
    lease: _Amount = 0.0
    """Duration of its leases in seconds; 0 from a worker of an older version."""
    version: str = ""
    protocols: tuple[_Count, ...] = (1,)
    """Versions of the jobs that the worker reads (see :mod:`shared.protocol.version`)."""
    detail: str = ""
    """What the worker is doing or what went wrong, human-readable."""
    aliases: tuple[str, ...] = ()
    """Other names by which clients may request the model."""
    modalities: tuple[str, ...] = (TEXT,)
    """What prompts may contain: :data:`TEXT`, and :data:`IMAGE` for a vision-language model."""
    kinds: tuple[str, ...] = (GENERATE,)
    """What the model does: :data:`GENERATE` text, :data:`EMBED` texts in vectors, or :data:`RERANK` texts."""
    vocabulary: str = ""
    """Digest of the model's vocabulary and chat template. Only workers with the same one can continue a stream."""
    logits: bool = False
    """Whether the worker serves fields that need the model's logits."""
    engine_reason: str = ""
    """Why the engine was chosen, human-readable."""
    prefix_caching: bool = True
    """Whether prompts reuse the KV cache of earlier ones. Prefix routing prefers no worker that says False."""
    devices: tuple[str, ...] = ()
    """The devices that OpenVINO finds on its host."""
    temperature: _Amount | None = None
    """The model's own default; None if it has none. The same applies to ``top_p``."""
    top_p: _Amount | None = None
    max_tokens: _Count = 0
    """The operator's default for the model; 0 if there is none."""
    formats: ModelFormats | None = None
    """None until the model is loaded, and without a chat template."""


class ReplicaInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An API replica's registry record."""

    id: str
    host: str
    pid: _Count
    address: str
    started: _Amount
    streams: _Count = 0
    version: str = ""
    protocol: _Count = 1
    """Version of the jobs that the replica writes (see :mod:`shared.protocol.version`)."""
    first_token_times: dict[str, dict[_Count, _Count]] = {}
    """Histogram of the recent times to first token of each model (see :mod:`api.metrics.histogram`)."""
    failures: dict[str, _Count] = {}
    """Number of requests for each model that have failed since the replica started."""


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A model's registry record; kept after its workers have gone."""

    name: str
    created: _Count
    context_length: _Count
    max_prompt: _Count = 0
    """As in :class:`WorkerInfo`."""
    fingerprint: str = ""
    aliases: tuple[str, ...] = ()
    modalities: tuple[str, ...] = (TEXT,)
    kinds: tuple[str, ...] = (GENERATE,)
    temperature: _Amount | None = None
    top_p: _Amount | None = None
    max_tokens: _Count = 0
    formats: ModelFormats | None = None
    state: str = ""
    """The best :data:`PlacementStatus` of a model that nodes load by demand; otherwise empty, as in the store."""
    nodes: _Count = 0
    """How many nodes have it in this state."""
    detail: str = ""
    """What a model that is being loaded waits for, why it cannot be loaded, and which nodes have other entries for it;
    otherwise empty, as in the store."""


PlacementStatus = Literal["unloaded", "loading", "loaded", "unloading", "failed"]
UnloadCause = Literal["idle", "swap", "changed", "operator", "failed", "stop"]
"""Why a node unloads a model: for being idle, to make room for another, for a new entry in the catalogue, by an
operator, for a failure, or because the node stops."""


class DeclaredModel(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A model of a node's catalogue. What only a loaded model shows is from its last load; empty before the first."""

    name: str
    source: str
    digest: str
    """Digest of the model's entry. Nodes whose entries differ do not serve the same model."""
    aliases: tuple[str, ...] = ()
    keep: str = ""
    least: _Count = 0
    """Number of workers that the fleet has of it even without requests."""
    status: str = "unloaded"
    """A :data:`PlacementStatus` of the model on this node."""
    detail: str = ""
    """Why the model is loaded, or what went wrong, human-readable."""
    memory: _Count = 0
    """Bytes of the host that the model takes or would take on this node."""
    device_memory: dict[str, _Count] = {}
    """The same for discrete GPUs, by device."""
    load_seconds: _Amount = 0.0
    ready_in: _Amount = 0.0
    """Seconds until a loading model is loaded, if that takes as long as its last load; 0 if it takes longer."""
    loads: _Count = 0
    """How often the node has started to load it. This and the following counts begin with the node."""
    failures: _Count = 0
    unloads: dict[str, _Count] = {}
    """How often it was unloaded, by :data:`UnloadCause`."""
    resident_seconds: _Amount = 0.0
    """How long it has been loaded altogether."""
    waited: _Amount = 0.0
    """Seconds for which requests wait while no worker in the fleet serves it."""
    command: str = ""
    """Id of the last command for the model that the node has read (see :mod:`shared.protocol.model_commands`)."""
    context_length: _Count = 0
    fingerprint: str = ""
    modalities: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    temperature: _Amount | None = None
    top_p: _Amount | None = None
    max_tokens: _Count = 0

    @property
    def in_memory(self) -> bool:
        """Whether the model takes its memory now."""
        return self.status in ("loading", "loaded", "unloading")


class NodeInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node's registry record: a host that loads models of a catalogue by demand."""

    id: str
    host: str
    pid: _Count
    started: _Amount
    memory: _Count
    """Bytes of the host that its models may take together."""
    devices: dict[str, _Count] = {}
    """The same for each discrete GPU, by device."""
    models: tuple[DeclaredModel, ...] = ()
    version: str = ""


def unread_protocols(worker: WorkerInfo, replicas: Iterable[ReplicaInfo]) -> list[int]:
    """Return the protocol versions of ``replicas`` whose jobs ``worker`` cannot read."""
    return sorted({replica.protocol for replica in replicas}.difference(worker.protocols))


class LeaseMismatch(Exception):
    """This process has another lease than the workers of its store."""

    def __init__(self, own: float, other: WorkerInfo) -> None:
        """``own`` is this process's lease in seconds. ``other`` is a worker with another one."""
        super().__init__(
            f"--lease is {own:g} s here, but {other.lease:g} s in worker {other.id} on {other.host}. It must be the "
            "same in all processes (VINOQUEUE_LEASE). To change it, stop all of them."
        )
        self.lease = other.lease


def check_lease(workers: Iterable[WorkerInfo], lease: float) -> None:
    """Raise :class:`LeaseMismatch` if any of ``workers`` has another lease than ``lease`` seconds."""
    for worker in workers:
        if worker.lease not in (0.0, lease):
            raise LeaseMismatch(lease, worker)


_Info = TypeVar("_Info", WorkerInfo, ReplicaInfo, NodeInfo)

_ANNOUNCE = (files("shared.protocol") / "announce.lua").read_text()


_PLACES: Mapping[type, tuple[str, Callable[[str], str]]] = {
    WorkerInfo: (keys.WORKERS, keys.worker),
    ReplicaInfo: (keys.REPLICAS, keys.replica),
    NodeInfo: (keys.NODES, keys.node),
}
"""The index of each kind of record, and the function from an id to the record's key."""


async def announce(redis: Redis, info: WorkerInfo | ReplicaInfo | NodeInfo, *, lease: float) -> None:
    """Write a process's record for ``lease`` seconds, with that of its model if it is a worker that serves."""
    index, key = _PLACES[type(info)]
    names = [key(info.id), index]
    arguments: list[Argument] = [info.id, msgspec.json.encode(info), int(lease * 1000), _INDEX_TTL]
    if isinstance(info, WorkerInfo):
        names += (keys.MODELS, keys.MODELS_SEEN)
    if isinstance(info, WorkerInfo) and info.status == "serving":
        arguments += (info.model, msgspec.json.encode(model_of(info)), MODEL_TTL, MAX_MODELS)
    await redis.register_script(_ANNOUNCE)(names, arguments)


def model_of(worker: WorkerInfo) -> ModelInfo:
    """Return the record of the model that ``worker`` serves or will serve."""
    return ModelInfo(
        name=worker.model,
        created=int(worker.started),
        context_length=worker.context_length,
        max_prompt=worker.max_prompt,
        fingerprint=worker.fingerprint,
        aliases=worker.aliases,
        modalities=worker.modalities,
        kinds=worker.kinds,
        temperature=worker.temperature,
        top_p=worker.top_p,
        max_tokens=worker.max_tokens,
        formats=worker.formats,
    )


async def withdraw(redis: Redis, kind: type[_Info], own_id: str) -> None:
    """Remove a process from the registry."""
    index, key = _PLACES[kind]
    await asyncio.gather(redis.delete(key(own_id)), redis.zrem(index, own_id))


async def forget_model(redis: Redis, name: str) -> None:
    """Forget the model with the own name ``name``. A worker that serves it announces it again."""
    async with redis.pipeline(transaction=True) as pipe:
        pipe.hdel(keys.MODELS, name)
        pipe.zrem(keys.MODELS_SEEN, name)
        await pipe.execute()


class RegistrySnapshot(NamedTuple):
    """The registered workers, API replicas and nodes, ordered by id, and the models that are remembered, by name."""

    workers: list[WorkerInfo]
    replicas: list[ReplicaInfo]
    nodes: list[NodeInfo]
    models: dict[str, ModelInfo]


async def read_registry(redis: Redis) -> RegistrySnapshot:
    """Read the registry in two round trips.

    Unreadable records are skipped. Raises what redis-py raises when the store is unreachable.
    """
    workers, replicas, nodes, models = await asyncio.gather(
        registered(redis, WorkerInfo),
        registered(redis, ReplicaInfo),
        registered(redis, NodeInfo),
        cast("Any", redis.hgetall(keys.MODELS)),
    )
    return RegistrySnapshot(workers, replicas, nodes, _read_models(models))


async def registered(redis: Redis, kind: type[_Info]) -> list[_Info]:
    """Read the records of one kind, ordered by id. Raises what redis-py raises when the store is unreachable."""
    key: Callable[[str], str]
    index, key = _PLACES[kind]
    ids: list[str] = [_text(item) for item in await redis.zrange(index, 0, -1)]
    records: Sequence[bytes | None] = await redis.mget([*map(key, ids)]) if ids else ()
    found: list[_Info] = []
    for own_id, record in zip(ids, records, strict=True):
        if record is None:
            continue
        with skipped_unreadable(key(own_id)):
            info = msgspec.json.decode(record, type=kind)
            if info.id != own_id:
                raise ValueError(f"its id is {info.id[:64]!r}")
            found.append(info)
    return sorted(found, key=lambda info: info.id)


async def heartbeats(redis: Redis, *, lease: float) -> dict[str, float]:
    """Return the time of the last heartbeat (Unix seconds, store's clock) of each worker that did not withdraw.

    Includes workers whose lease of ``lease`` seconds ended within the last minute. Raises what redis-py raises.
    """
    ends = await redis.zrange(keys.WORKERS, 0, -1, withscores=True)
    return {_text(worker): float(end) - lease for worker, end in ends}


def _text(name: bytes) -> str:
    """Return a name as text. Whoever may write to the store can write any bytes."""
    return name[:_MAX_NAME].decode(errors="replace")


def _read_models(records: dict[bytes, bytes]) -> dict[str, ModelInfo]:
    models = {}
    for name, record in islice(records.items(), MAX_MODELS):
        with skipped_unreadable(f"{keys.MODELS} {_text(name)}"):
            models[_text(name)] = msgspec.json.decode(record, type=ModelInfo)
    return models
