"""The occupancy of a model's queue: how many jobs wait in each tier, and which worker holds each claimed job."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal

from redis.asyncio import Redis

from shared.protocol.queue.texts import QUEUE_TYPES, queue_keys, script_text
from shared.redis.scripts import Script

ServedTier = Literal["priority", "default", "flex", "batch"]
"""A service tier with its own band."""

TIERS: dict[int, ServedTier] = {-3: "priority", -2: "default", -1: "flex", 0: "batch"}
"""The tier of each band, in the order in which they are served."""

MAX_LISTED = 2048
"""Maximum number of claimed jobs that are listed per model."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The claim of a job: its worker, attempt and service tier."""

    worker: str
    attempt: int
    tier: ServedTier


@dataclass(frozen=True, slots=True)
class Occupancy:
    """The waiting and claimed jobs of a model at one time."""

    waiting: dict[ServedTier, int] = field(default_factory=lambda: dict.fromkeys(TIERS.values(), 0))
    """Number of waiting jobs per tier."""
    claimed: dict[str, Holder] = field(default_factory=dict)
    """The claimed jobs, at most :data:`MAX_LISTED`."""
    queued: frozenset[str] = frozenset()
    """The requested jobs that wait in the queue."""

    def running(self, tier: ServedTier) -> int:
        """Return the number of claimed jobs of ``tier``."""
        return sum(holder.tier == tier for holder in self.claimed.values())


class OccupancyReader:
    """Reads occupancies, each in one script call that writes nothing."""

    def __init__(self, redis: Redis) -> None:
        self._script = Script(redis, script_text("occupancy"), QUEUE_TYPES)

    async def read(self, model: str, jobs: Collection[str] = ()) -> Occupancy:
        """Return the occupancy of ``model``, and which of ``jobs`` wait. Raises what redis-py raises."""
        waiting, claimed, queued = await self._script(queue_keys(model), (MAX_LISTED, *jobs))
        rows = zip(claimed[::4], claimed[1::4], claimed[2::4], claimed[3::4], strict=True)
        return Occupancy(
            dict(zip(TIERS.values(), waiting, strict=True)),
            {
                job.decode(errors="replace"): Holder(worker.decode(errors="replace"), attempt, TIERS[band])
                for job, worker, attempt, band in rows
                if band in TIERS
            },
            frozenset(job.decode() for job in queued),
        )
