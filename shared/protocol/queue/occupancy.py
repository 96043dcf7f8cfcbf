"""The occupancy of a model's queue: how many jobs wait in each tier, which worker holds each claimed job, and moves."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec
from redis.asyncio import Redis

from shared.protocol.cost import BYTES_PER_TOKEN, UNBOUNDED_RESPONSE
from shared.protocol.queue.texts import PRIORITY_CLASSES, ServedTier, queue_keys, script_text
from shared.redis import keys
from shared.redis.client import database_of
from shared.redis.records import skipped_unreadable

_TIERS = {number: tier for tier, number in PRIORITY_CLASSES.items()}

MAX_LISTED = 2048
"""Maximum number of claimed jobs that are listed per model."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The claim of a job: its worker, attempt and service tier."""

    worker: str
    attempt: int
    tier: ServedTier


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """A job that changed its worker, or returned to the queue (``to`` is ``None``)."""

    time: float
    """Unix time in seconds of the store's clock."""
    request: str
    """Id of the job, as in the log."""
    model: str = ""
    """Not in the store."""
    source: str = msgspec.field(name="from")
    target: str | None = msgspec.field(name="to")
    reason: str
    """``worker_lost``, or ``released`` by a worker that drains or replaces its engine."""


@dataclass(frozen=True, slots=True)
class Occupancy:
    """The waiting and claimed jobs of a model at one time, and what has moved before."""

    waiting: dict[ServedTier, int] = field(default_factory=lambda: dict.fromkeys(PRIORITY_CLASSES, 0))
    """Number of waiting jobs per tier."""
    claimed: dict[str, Holder] = field(default_factory=dict)
    """The claimed jobs, at most :data:`MAX_LISTED`."""
    moves: tuple[Move, ...] = ()
    """The last moves, newest first; without returns to the queue after which the job has moved again."""

    def held_by(self, worker: str) -> bool:
        """Return whether ``worker`` has claimed a job."""
        return any(holder.worker == worker for holder in self.claimed.values())

    def running(self, tier: ServedTier) -> int:
        """Return the number of claimed jobs of ``tier``."""
        return sum(holder.tier == tier for holder in self.claimed.values())


class OccupancyReader:
    """Reads occupancies, each in one script call that writes nothing."""

    def __init__(self, redis: Redis) -> None:
        self._script = redis.register_script(script_text("occupancy", database_of(redis)))

    async def read(self, model: str) -> Occupancy:
        """Return the occupancy of ``model``. Raises what redis-py raises."""
        waiting, claimed, moves = await self._script([*queue_keys(model), keys.moves(model)], (MAX_LISTED,))
        rows = zip(claimed[::4], claimed[1::4], claimed[2::4], claimed[3::4], strict=True)
        return Occupancy(
            dict(zip(PRIORITY_CLASSES, waiting, strict=True)),
            {
                job.decode(): Holder(worker.decode(), attempt, _TIERS[number])
                for job, worker, attempt, number in rows
                if number in _TIERS
            },
            tuple(_last_moves(model, moves)),
        )


async def waiting_tokens(redis: Redis, model: str, occupancy: Occupancy) -> tuple[int, int]:
    """Estimate the tokens of the waiting jobs of ``model``: of batch requests, and of all others first.

    The store knows the bytes of the queued and claimed requests together, so these are shared among both. Raises what
    redis-py raises.
    """
    sums = await cast("Any", redis.hmget(keys.sizes(model), ["sum:text", "sum:text:batch"]))
    text, batch_text = (int(found or 0) for found in sums)
    batch = occupancy.waiting["batch"]
    other = sum(occupancy.waiting.values()) - batch
    running = occupancy.running("batch")
    return (
        _tokens(other, len(occupancy.claimed) - running, text - batch_text),
        _tokens(batch, running, batch_text),
    )


def _tokens(waiting: int, claimed: int, text: int) -> int:
    return waiting * (UNBOUNDED_RESPONSE + text // (BYTES_PER_TOKEN * (waiting + claimed))) if waiting else 0


def _last_moves(model: str, entries: list[bytes]) -> Iterator[Move]:
    moved: set[str] = set()
    for entry in entries:
        with skipped_unreadable(keys.moves(model)):
            move = msgspec.structs.replace(msgspec.json.decode(entry, type=Move), model=model)
            if move.target is not None or move.request not in moved:
                yield move
            moved.add(move.request)
