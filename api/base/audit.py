"""The audit log: who changed what and when, of keys, batches, workers and models."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline

from shared.redis import keys
from shared.redis.records import UNREADABLE, report_unreadable

MOST_CHANGES = 10_000
"""Number of changes that the log keeps at least; older ones are dropped some at a time."""


class Change(NamedTuple):
    """A change of ``target`` (an id) by ``actor``: ``key ID``, ``cli USER@HOST``, or ``anybody`` without keys.

    ``action`` is as in OpenAI's audit log, such as ``api_key.created``. ``at`` is in Unix seconds.
    """

    at: float
    actor: str
    action: str
    target: str
    details: Mapping[str, object]


def log_change(
    redis: "Redis | Pipeline", actor: str, action: str, target: str, details: Mapping[str, object] | None = None
) -> object:
    """Append a change to the log, with the store's time; to be awaited unless ``redis`` is a pipeline."""
    fields = {"actor": actor, "action": action, "target": target, "details": msgspec.json.encode(details or {})}
    return redis.xadd(keys.AUDIT, fields, maxlen=MOST_CHANGES, approximate=True)  # type: ignore[arg-type]


async def read_changes(redis: Redis, most: int) -> list[Change]:
    """Return the newest ``most`` changes, oldest first. Raises what redis-py raises when the store is unreachable."""
    found = []
    for name, fields in await redis.xrevrange(keys.AUDIT, count=most):
        try:
            actor, action, target = (fields[field].decode() for field in (b"actor", b"action", b"target"))
            details = msgspec.json.decode(fields[b"details"], type=dict[str, object])
            found.append(Change(int(name.partition(b"-")[0]) / 1000, actor, action, target, details))
        except (*UNREADABLE, KeyError) as error:
            report_unreadable(f"{keys.AUDIT} {name.decode()}", error)
    return found[::-1]
