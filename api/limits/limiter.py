"""Counting requests and tokens against the limits of keys, in Redis, so that all replicas share the counts."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

from redis.asyncio import Redis

from api.keys.record import ApiKey
from shared.redis import keys
from shared.redis.scripts import Script

LimitName = Literal["requests", "tokens", "concurrency"]

_NAMES: tuple[LimitName, ...] = ("requests", "tokens", "concurrency")


@dataclass(frozen=True, slots=True)
class Counts:
    """What is left of one limit, and the seconds until all of it is back."""

    limit: int
    remaining: int
    reset: float


@dataclass(frozen=True, slots=True)
class Reservation:
    """A request of a key: its name among the key's, and the tokens that are counted for it until its end."""

    key: ApiKey
    name: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """The limit that refused a request. ``wait`` is in seconds; ``None`` where it depends on other requests' ends."""

    limit: LimitName
    wait: float | None


class Limiter:
    """Reserves and settles requests of keys that have limits, in one call to Redis each."""

    def __init__(self, redis: Redis, *, replica: str, lease: float, longest: float) -> None:
        """``replica`` is this API replica's id. The places of a replica that is gone are freed after ``lease`` seconds,
        any place after ``longest`` seconds, the most that a request can be in flight."""
        self._replica = replica
        self._lease_ms = int(lease * 1000)
        self._longest_ms = int(longest * 1000)
        folder = files("api.limits")
        self._reserve = Script(redis, (folder / "reserve.lua").read_text(), ("hash", "zset"))
        self._settle = Script(redis, (folder / "settle.lua").read_text(), ("hash", "zset"))

    def new_name(self) -> str:
        """Return a name for a reservation, which tells whose it is."""
        return f"{uuid.uuid4().hex} {self._replica}"

    async def reserve(self, reservation: Reservation) -> tuple[Refusal | None, dict[LimitName, Counts]]:
        """Count one request; return the limit that refuses it, if any, and the counts of the key's rates.

        Raises what redis-py raises when the store can't be reached.
        """
        key = reservation.key
        limits = [key.requests_per_minute, key.tokens_per_minute, key.concurrency]
        reply: list[int] = await self._call(
            self._reserve,
            key,
            [
                *("" if limit is None else limit for limit in limits),
                reservation.tokens,
                reservation.name,
                self._longest_ms,
                keys.REPLICA_PREFIX,
                self._replica,
                self._lease_ms,
            ],
        )
        refusing, wait, *state = reply
        counts = {
            limit_name: Counts(limit, state[2 * at], state[2 * at + 1] / 1000)
            for at, (limit_name, limit) in enumerate(zip(_NAMES[:2], limits[:2], strict=True))
            if limit is not None
        }
        if refusing:
            return Refusal(_NAMES[refusing - 1], wait / 1000 if wait else None), counts
        return None, counts

    async def settle(self, reservation: Reservation, used: int) -> None:
        """End a request that used so many tokens. Raises what redis-py raises when the store can't be reached."""
        limit = reservation.key.tokens_per_minute
        await self._call(
            self._settle,
            reservation.key,
            ["" if limit is None else limit, used - reservation.tokens, reservation.name],
        )

    async def _call(self, script: Script, key: ApiKey, arguments: Sequence[str | int]) -> Any:
        return await script([keys.buckets(key.id), keys.admitted(key.id)], arguments)
