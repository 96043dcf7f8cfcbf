"""Who is there: what workers and API replicas advertise in Redis, and how the others read it.

An advertisement is renewed every third of the lease and lapses with it, so a process that dies needs no farewell.
"""

import asyncio
import time
from collections.abc import Sequence
from importlib.resources import files
from typing import Literal, NamedTuple, TypeVar

import msgspec
from redis.asyncio import Redis

from shared import keys
from shared.scripts import Script

_REMEMBERED = 60.0
"""Seconds after which the id of one whose advertisement has lapsed is forgotten."""

WorkerStatus = Literal["loading", "serving", "draining", "failing"]


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A worker as it describes itself. Times are Unix seconds, rates are per second over the last few seconds."""

    id: str
    host: str
    pid: int
    model: str
    status: WorkerStatus
    engine: str
    device: str
    fingerprint: str
    started: float
    slots: int
    used: int = 0
    context_length: int = 0
    cache_usage: float = 0.0
    """Share of the KV cache in use, 0 to 1, from the engine's own metrics."""
    engine_requests: int = 0
    """Requests that the engine itself holds."""
    batch: int = 0
    """Requests in the last step."""
    steps: int = 0
    tokens: int = 0
    tokens_per_second: float = 0.0
    requests: int = 0
    engine_restarts: int = 0
    version: str = ""
    detail: str = ""
    """What it is doing or what went wrong, for people."""


class ReplicaInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An API replica as it describes itself."""

    id: str
    host: str
    pid: int
    address: str
    started: float
    streams: int = 0
    version: str = ""


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A model as its workers advertise it; remembered after they have gone."""

    name: str
    created: int
    context_length: int
    fingerprint: str = ""


_Info = TypeVar("_Info", WorkerInfo, ReplicaInfo)

_ANNOUNCE = (files("shared") / "announce.lua").read_text()


async def announce_worker(redis: Redis, info: WorkerInfo, *, lease: float) -> None:
    """Advertise a worker for ``lease`` seconds, and its model for good once it serves."""
    served: list[str | bytes] = []
    if info.status == "serving":
        model = ModelInfo(
            name=info.model,
            created=int(info.started),
            context_length=info.context_length,
            fingerprint=info.fingerprint,
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
    """Read the registry, in two round trips: every replica does it each second, beside an engine perhaps."""
    workers, replicas, models = await asyncio.gather(
        redis.zrange(keys.WORKERS, 0, -1),
        redis.zrange(keys.REPLICAS, 0, -1),
        redis.hgetall(keys.MODELS),  # type: ignore[arg-type] # its stub tells of no client in particular
    )
    names = [keys.worker(one.decode()) for one in workers] + [keys.replica(one.decode()) for one in replicas]
    advertised = await redis.mget(names) if names else []
    return Survey(
        _read(advertised[: len(workers)], WorkerInfo),
        _read(advertised[len(workers) :], ReplicaInfo),
        {name.decode(): msgspec.json.decode(info, type=ModelInfo) for name, info in models.items()},
    )


async def _announce(
    redis: Redis,
    names: list[str],
    info: WorkerInfo | ReplicaInfo,
    lease: float,
    served: list[str | bytes] | None = None,
) -> None:
    now = time.time()
    arguments = (info.id, msgspec.json.encode(info), int(lease * 1000), now + lease, now - _REMEMBERED, *(served or ()))
    await Script(redis, _ANNOUNCE)(names, arguments)


def _read(advertised: Sequence[bytes | None], kind: type[_Info]) -> list[_Info]:
    return sorted((msgspec.json.decode(info, type=kind) for info in advertised if info), key=lambda info: info.id)
