"""Who is there: what workers and API replicas advertise in Redis, and how the others read it.

An advertisement is renewed every third of the lease and lost_workers with it, so a process that dies needs no farewell.
Leases are timed by the store's clock alone. What cannot be read is skipped (see :mod:`shared.redis.records`).
"""

import asyncio
from collections.abc import Awaitable, Sequence
from importlib.resources import files
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from shared.redis import keys
from shared.redis.records import UNREADABLE, is_wrong_type, readable_names, report_unreadable
from shared.redis.scripts import KeyType, Script

_REMEMBERED = 60
"""Seconds after which the id of one whose advertisement has lapsed is forgotten."""

WorkerStatus = Literal["loading", "serving", "draining", "failing"]

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_Amount = Annotated[float, msgspec.Meta(ge=0, le=1e15)]


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A worker as it describes itself. Times are Unix seconds, rates are per second over the last few seconds."""

    id: str
    host: str
    pid: _Count
    model: str
    """The model's own name: that of its queue, and the one in answers."""
    status: str
    """A :data:`WorkerStatus`, or one of a newer version: such a worker is alive, but does not serve as far as this
    version knows."""
    engine: str
    device: str
    fingerprint: str
    started: _Amount
    slots: _Count
    used: _Count = 0
    context_length: _Count = 0
    cache_usage: _Amount = 0.0
    """Share of the KV cache in use, 0 to 1, from the engine's own metrics."""
    engine_requests: _Count = 0
    """Requests that the engine itself holds."""
    batch: _Count = 0
    """Requests in the last step."""
    steps: _Count = 0
    tokens: _Count = 0
    tokens_per_second: _Amount = 0.0
    requests: _Count = 0
    engine_restarts: _Count = 0
    version: str = ""
    detail: str = ""
    """What it is doing or what went wrong, for people."""
    aliases: tuple[str, ...] = ()
    """Other names under which clients may ask for the model."""


class ReplicaInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An API replica as it describes itself."""

    id: str
    host: str
    pid: _Count
    address: str
    started: _Amount
    streams: _Count = 0
    version: str = ""


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A model as its workers advertise it; remembered after they have gone."""

    name: str
    created: _Count
    context_length: _Count
    fingerprint: str = ""
    aliases: tuple[str, ...] = ()


_Info = TypeVar("_Info", WorkerInfo, ReplicaInfo)

_ANNOUNCE = (files("shared.protocol") / "announce.lua").read_text()
_TYPES: tuple[KeyType, ...] = ("string", "zset", "hash")


async def announce_worker(redis: Redis, info: WorkerInfo, *, lease: float) -> None:
    """Advertise a worker for ``lease`` seconds, and its model for good once it serves."""
    served: list[str | bytes] = []
    if info.status == "serving":
        model = ModelInfo(
            name=info.model,
            created=int(info.started),
            context_length=info.context_length,
            fingerprint=info.fingerprint,
            aliases=info.aliases,
        )
        served = [info.model, msgspec.json.encode(model)]
    await _announce(redis, [keys.worker(info.id), keys.WORKERS, keys.MODELS], info, lease, served)


async def announce_replica(redis: Redis, info: ReplicaInfo, *, lease: float) -> None:
    """Advertise an API replica for ``lease`` seconds."""
    await _announce(redis, [keys.replica(info.id), keys.REPLICAS], info, lease)


async def withdraw_worker(redis: Redis, info: WorkerInfo) -> None:
    """Take a worker out of the registry and of the wake-up list."""
    async with redis.pipeline(transaction=False) as pipe:
        pipe.delete(keys.worker(info.id))
        pipe.zrem(keys.WORKERS, info.id)
        pipe.zrem(keys.load(info.model), info.id)
        await pipe.execute()


async def withdraw_replica(redis: Redis, replica_id: str) -> None:
    """Take an API replica out of the registry."""
    async with redis.pipeline(transaction=False) as pipe:
        pipe.delete(keys.replica(replica_id))
        pipe.zrem(keys.REPLICAS, replica_id)
        await pipe.execute()


class Survey(NamedTuple):
    """The workers and API replicas whose advertisements hold, by id, and every model that was ever served, by name."""

    workers: list[WorkerInfo]
    replicas: list[ReplicaInfo]
    models: dict[str, ModelInfo]


async def survey(redis: Redis) -> Survey:
    """Read the registry, in two round trips: every replica does it each second, beside an engine perhaps.

    Records that cannot be read are left out. Raises what redis-py raises when the store can't be reached.
    """
    indexes = await asyncio.gather(
        _read_index(keys.WORKERS, redis.zrange(keys.WORKERS, 0, -1)),
        _read_index(keys.REPLICAS, redis.zrange(keys.REPLICAS, 0, -1)),
        _read_index(keys.MODELS, redis.hgetall(keys.MODELS)),  # type: ignore[arg-type] # its stub tells of no client in particular
    )
    workers = readable_names(keys.WORKERS, indexes[0])
    replicas = readable_names(keys.REPLICAS, indexes[1])
    names = [keys.worker(one) for one in workers] + [keys.replica(one) for one in replicas]
    advertised = await redis.mget(names) if names else []
    return Survey(
        _read(workers, names, advertised, WorkerInfo),
        _read(replicas, names[len(workers) :], advertised[len(workers) :], ReplicaInfo),
        _read_models(dict(indexes[2])),
    )


async def _announce(
    redis: Redis,
    names: list[str],
    info: WorkerInfo | ReplicaInfo,
    lease: float,
    served: list[str | bytes] | None = None,
) -> None:
    arguments = (info.id, msgspec.json.encode(info), int(lease * 1000), _REMEMBERED, *(served or ()))
    await Script(redis, _ANNOUNCE, _TYPES[: len(names)])(names, arguments)


async def _read_index(name: str, reply: Awaitable[Any]) -> Any:
    """Return the ``reply`` to a command that reads ``name``; nothing where that holds another type of value, until
    somebody announces itself and replaces it."""
    try:
        return await reply
    except ResponseError as error:
        if not is_wrong_type(error):
            raise
        report_unreadable(name, error)
        return ()


def _read(
    ids: Sequence[str], names: Sequence[str], advertised: Sequence[bytes | None], kind: type[_Info]
) -> list[_Info]:
    found = []
    for own_id, name, record in zip(ids, names, advertised, strict=False):
        if record is None:
            continue
        try:
            info = msgspec.json.decode(record, type=kind)
            if info.id != own_id:
                raise ValueError(f"its id is {info.id[:64]!r}")
        except UNREADABLE as error:
            report_unreadable(name, error)
        else:
            found.append(info)
    return sorted(found, key=lambda info: info.id)


def _read_models(records: dict[bytes, bytes]) -> dict[str, ModelInfo]:
    models = {}
    for name in readable_names(keys.MODELS, records):
        try:
            models[name] = msgspec.json.decode(records[name.encode()], type=ModelInfo)
        except UNREADABLE as error:
            report_unreadable(f"{keys.MODELS} {name}", error)
    return models
