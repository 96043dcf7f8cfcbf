"""The limiter: reserves and settles API keys' limits in the store, shared by all replicas."""

import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal, get_args

from redis.asyncio import Redis

from api.keys.record import ApiKey
from shared.redis import keys
from shared.redis.scripts import Script

LimitName = Literal["requests", "tokens", "concurrency", "tokens_per_day", "tokens_per_month"]

_NAMES: tuple[LimitName, ...] = get_args(LimitName)

logger = logging.getLogger(__name__)

WARNED_SHARE = 0.8
"""Share of a budget from which on it is logged."""


@dataclass(frozen=True, slots=True)
class Counts:
    """The state of one limit. ``reset`` is the number of seconds until all of it is available again."""

    limit: int
    remaining: int
    reset: float


@dataclass(frozen=True, slots=True)
class Reservation:
    """A reservation of a key's limits for one request: its name and its tokens."""

    key: ApiKey
    name: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """The exceeded limit. ``wait`` is in seconds; ``None`` if it depends on when other requests end."""

    limit: LimitName
    wait: float | None


class Limiter:
    """Reserves and settles requests of limited keys, with one script call each."""

    def __init__(self, redis: Redis, *, replica: str, lease: float, longest: float) -> None:
        """``replica`` is this replica's id. Concurrency places of a lost replica are freed after ``lease`` seconds, and
        any place after ``longest`` seconds, the maximum duration of a request."""
        self._replica = replica
        self._lease_ms = int(lease * 1000)
        self._longest_ms = int(longest * 1000)
        folder = files("api.limits")
        self._reserve = Script(redis, (folder / "reserve.lua").read_text())
        self._settle = Script(redis, (folder / "settle.lua").read_text())
        self._warned: set[tuple[str, LimitName]] = set()
        """The keys and their budgets that were logged."""

    def new_name(self) -> str:
        """Return a unique name for a reservation, which includes the replica's id."""
        return f"{uuid.uuid4().hex} {self._replica}"

    async def reserve(self, reservation: Reservation) -> tuple[Refusal | None, dict[LimitName, Counts]]:
        """Reserve one request; return the exceeded limit, if any, and the state of the key's rate limits.

        Raises what redis-py raises when the store is unreachable.
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
                keys.replica(""),
                self._replica,
                self._lease_ms,
                *("" if budget is None else budget for budget in key.budgets),
                keys.spent(key.id),
            ],
        )
        refusing, wait, *state, of_day, of_month = reply
        self._warn(key, (of_day, of_month))
        counts = {
            limit_name: Counts(limit, state[2 * at], state[2 * at + 1] / 1000)
            for at, (limit_name, limit) in enumerate(zip(_NAMES[:2], limits[:2], strict=True))
            if limit is not None
        }
        if refusing:
            return Refusal(_NAMES[refusing - 1], wait / 1000 if wait else None), counts
        return None, counts

    def _warn(self, key: ApiKey, spent: tuple[int, int]) -> None:
        """Log once that a budget of ``key`` is nearly used up."""
        for name, used, budget in zip(_NAMES[3:], spent, key.budgets, strict=True):
            if budget is None or used < WARNED_SHARE * budget:
                self._warned.discard((key.id, name))
            elif (key.id, name) not in self._warned:
                self._warned.add((key.id, name))
                period = name.removeprefix("tokens_per_")
                logger.warning("key %s has used %d of its %d tokens per %s", key.id, used, budget, period)

    async def settle(self, reservation: Reservation, used: int) -> None:
        """Settle a request that used ``used`` tokens. Raises what redis-py raises when the store is unreachable."""
        limit = reservation.key.tokens_per_minute
        await self._call(
            self._settle,
            reservation.key,
            ["" if limit is None else limit, used - reservation.tokens, reservation.name],
        )

    async def _call(self, script: Script, key: ApiKey, arguments: Sequence[str | int]) -> Any:
        return await script([keys.buckets(key.id), keys.admitted(key.id)], arguments)
