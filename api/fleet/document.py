"""The fleet document: the body of ``GET /v1/fleet`` and of each event of ``GET /v1/fleet/events``."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from api.batches.record import Batch
from api.metrics.histogram import WINDOW, percentile
from shared.protocol.formats import ModelFormats
from shared.protocol.queue.occupancy import Move, Occupancy
from shared.protocol.queue.texts import PRIORITY_CLASSES, ServedTier
from shared.protocol.registry import ModelInfo, NodeInfo, ReplicaInfo, WorkerInfo, unread_protocols


class TierState(msgspec.Struct, frozen=True, kw_only=True):
    """The requests of one service tier. The unit is the job: a request with ``n`` choices counts ``n`` times."""

    tier: ServedTier
    waiting: int
    running: int
    expected_wait: float | None
    """Seconds that a new request would wait in the queue; ``None`` if the service rate is unknown."""


class FirstToken(msgspec.Struct, frozen=True, kw_only=True):
    """Times to first token in seconds, of all replicas' requests that ended within the window."""

    p50: float | None
    p95: float | None
    requests: int
    window: int = WINDOW


class ModelState(msgspec.Struct, frozen=True, kw_only=True):
    """A model, and the requests for it."""

    id: str
    state: str
    """A :data:`~shared.protocol.registry.PlacementStatus` if nodes load it by demand; otherwise empty."""
    aliases: tuple[str, ...]
    modalities: tuple[str, ...]
    kinds: tuple[str, ...]
    """What it does (:class:`~shared.protocol.registry.ModelInfo`)."""
    context_length: int
    formats: ModelFormats | None
    workers: int
    """Number of workers that serve it."""
    slots: int
    used: int
    tokens_per_second: float
    time_to_first_token: FirstToken
    failures: int
    """Requests that failed since the live replicas started: it falls when one of them ends."""
    tiers: list[TierState]


class RunningJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that a worker holds."""

    request: str
    """Id of the job, as in the log."""
    tier: ServedTier
    attempt: int


class WorkerState(msgspec.Struct, frozen=True, kw_only=True):
    """A worker. Times are Unix seconds of the store's clock."""

    id: str
    host: str
    pid: int
    model: str
    status: str
    """As in the registry; or ``silent`` after a missed heartbeat, and ``gone`` for a minute after its lease."""
    detail: str
    engine: str
    engine_reason: str
    """Why the worker runs this engine."""
    device: str
    slots: int
    used: int
    batch: int
    """Requests in the engine's last step."""
    cache_usage: float
    """Share of the KV cache in use, 0 to 1."""
    tokens_per_second: float
    tokens: int
    drafted: int
    """Draft tokens of speculative decoding."""
    accepted: int
    """Draft tokens that the model has accepted."""
    engine_restarts: int
    started: float
    last_heartbeat: float
    version: str
    unread_protocols: list[int]
    """Protocol versions of replicas whose jobs it cannot read."""
    running: list[RunningJob]


class ReplicaState(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    host: str
    address: str
    started: float
    streams: int
    version: str


class BatchState(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that has not ended, or has ended within the last minute. Times are Unix seconds."""

    id: str
    status: str
    endpoint: str
    model: str | None
    """The model, if all requests name the same one."""
    created: int
    total: int
    completed: int
    failed: int


class FleetDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the service, as read by one replica."""

    object: str = "fleet"
    time: float
    """Unix time in seconds of the store's clock."""
    replica: str
    store: str
    """``up``, or ``down`` while the store does not respond to the replica; the rest is then the last known state."""
    store_problems: list[str] = []
    """What is wrong with the store's settings, as sentences."""
    models: list[ModelState]
    workers: list[WorkerState]
    nodes: list[NodeInfo]
    """The hosts that load models by demand, as in the registry."""
    replicas: list[ReplicaState]
    batches: list[BatchState]
    """The batches of all keys, oldest first, at most 100 that have not ended."""
    moves: list[Move]
    """The moves of the last five minutes, oldest first; at most 200."""


def model_entry(
    info: ModelInfo,
    workers: Iterable[WorkerInfo],
    occupancy: Occupancy,
    rate: float | None,
    replicas: Iterable[ReplicaInfo],
) -> ModelState:
    """Return the entry of a model with its live ``workers``. ``rate`` is its service rate in jobs per second."""
    serving = [worker for worker in workers if worker.status == "serving"]
    slots, used = sum(worker.slots for worker in serving), sum(worker.used for worker in serving)
    times: Counter[int] = Counter()
    failures = 0
    for replica in replicas:
        times.update(replica.first_token_times.get(info.name, {}))
        failures += replica.failures.get(info.name, 0)
    tiers: list[TierState] = []
    ahead = 0
    for tier in PRIORITY_CLASSES:
        ahead += occupancy.waiting[tier]
        wait = 0.0 if ahead == 0 and used < slots else round((ahead + 1) / rate, 3) if rate else None
        running = occupancy.running(tier)
        tiers.append(TierState(tier=tier, waiting=occupancy.waiting[tier], running=running, expected_wait=wait))
    return ModelState(
        id=info.name,
        state=info.state,
        aliases=info.aliases,
        modalities=info.modalities,
        kinds=info.kinds,
        context_length=info.context_length,
        formats=info.formats,
        workers=len(serving),
        slots=slots,
        used=used,
        tokens_per_second=round(sum(worker.tokens_per_second for worker in serving), 1),
        time_to_first_token=FirstToken(
            p50=percentile(times, 0.5), p95=percentile(times, 0.95), requests=sum(times.values())
        ),
        failures=failures,
        tiers=tiers,
    )


def worker_entry(
    info: WorkerInfo,
    status: str,
    last_heartbeat: float,
    running: list[RunningJob],
    replicas: Iterable[ReplicaInfo],
) -> WorkerState:
    return WorkerState(
        **_fields(WorkerState, info)
        | {
            "status": status,
            "cache_usage": round(info.cache_usage, 4),
            "tokens_per_second": round(info.tokens_per_second, 1),
        },
        last_heartbeat=round(last_heartbeat, 3),
        unread_protocols=unread_protocols(info, replicas),
        running=running,
    )


def replica_entry(info: ReplicaInfo) -> ReplicaState:
    return ReplicaState(**_fields(ReplicaState, info))


def batch_entry(batch: Batch) -> BatchState:
    return BatchState(**_fields(BatchState, batch), **_fields(BatchState, batch.counts))


def jobs_of(occupancies: Mapping[str, Occupancy]) -> dict[str, list[RunningJob]]:
    """Return the claimed jobs of each worker."""
    held: dict[str, list[RunningJob]] = {}
    for occupancy in occupancies.values():
        for job, holder in occupancy.claimed.items():
            entry = RunningJob(request=job, tier=holder.tier, attempt=holder.attempt)
            held.setdefault(holder.worker, []).append(entry)
    return held


def _fields(kind: type[msgspec.Struct], record: msgspec.Struct) -> dict[str, Any]:
    """Return the fields of ``record`` that ``kind`` has as well."""
    return {name: getattr(record, name) for name in kind.__struct_fields__ if name in record.__struct_fields__}
