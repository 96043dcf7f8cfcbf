"""The audit log: who changed what and when, of keys, teams, batches, workers and models."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline

from shared.redis import keys
from shared.redis.records import UNREADABLE, report_unreadable

MOST_CHANGES = 10_000
"""Number of changes that the log keeps at least; older ones are dropped some at a time."""


_READ_AT_ONCE = 1000
"""Number of changes that are read and decoded at a time."""


class Change(NamedTuple):
    """A change of ``target`` (an id) by ``actor``: ``key ID``, ``cli USER@HOST``, or ``anybody`` without keys.

    ``action`` is as in OpenAI's audit log, such as ``api_key.created``; a project there is a team. ``at`` is in Unix
    seconds, ``id`` the change's id in the log.
    """

    id: str
    at: float
    actor: str
    action: str
    target: str
    details: Mapping[str, object]


def log_change(
    redis: "Redis | Pipeline", actor: str, action: str, target: str, details: Mapping[str, object] | None = None
) -> Any:
    """Append a change to the log, with the store's time; to be awaited unless ``redis`` is a pipeline."""
    fields = {"actor": actor, "action": action, "target": target, "details": msgspec.json.encode(details or {})}
    return redis.xadd(keys.AUDIT, fields, maxlen=MOST_CHANGES, approximate=True)  # type: ignore[arg-type]


async def read_changes(
    redis: Redis,
    most: int,
    *,
    wanted: Callable[[Change], bool] = lambda _: True,
    beyond: str | None = None,
    newest_first: bool = True,
) -> list[Change]:
    """Return up to ``most`` changes that are ``wanted``, from the newest, or else from the oldest.

    With ``beyond``, the id of a change, from the next one. Raises what redis-py raises when the store is unreachable.
    """
    found: list[Change] = []
    read = redis.xrevrange if newest_first else redis.xrange
    start = f"({beyond}" if beyond else "+" if newest_first else "-"
    while len(found) < most:
        entries = await read(keys.AUDIT, start, "-" if newest_first else "+", count=_READ_AT_ONCE)
        if not entries:
            break
        start = f"({entries[-1][0].decode()}"
        found += filter(wanted, _decoded(entries))
    return found[:most]


def _decoded(entries: Iterable[tuple[bytes, Mapping[bytes, bytes]]]) -> Iterator[Change]:
    for name, fields in entries:
        try:
            actor, action, target = (fields[field].decode() for field in (b"actor", b"action", b"target"))
            details = msgspec.json.decode(fields[b"details"], type=dict[str, object])
            yield Change(name.decode(), int(name.partition(b"-")[0]) / 1000, actor, action, target, details)
        except (*UNREADABLE, KeyError) as error:
            report_unreadable(f"{keys.AUDIT} {name.decode()}", error)
