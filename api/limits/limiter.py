"""The limiter: reserves and settles the limits of API keys and teams in the store, shared by all replicas."""

import asyncio
import logging
import uuid
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal, cast, get_args

from redis.asyncio import Redis

from api.keys.record import ApiKey, Limited, Team
from shared.redis import keys

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
    """A reservation for one request in the limits of a key, and of its team: its name and its tokens."""

    key: ApiKey
    name: str
    tokens: int
    team: Team | None = None

    @property
    def place(self) -> str:
        """Its name in the store."""
        return f"{self.tokens} {self.name}"

    @property
    def limited(self) -> tuple[Limited, ...]:
        """Who has limits."""
        return (self.key,) if self.team is None else (self.key, self.team)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The exceeded limit. ``wait`` is in seconds; ``None`` if it depends on when other requests end.

    ``by_team``: it is the team's limit, not the key's.
    """

    limit: LimitName
    wait: float | None
    by_team: bool = False


class Limiter:
    """Reserves and settles requests of keys and teams with limits, with one script call for each."""

    def __init__(self, redis: Redis, *, replica: str, lease: float, longest: float) -> None:
        """``replica`` is this replica's id. Concurrency places of a lost replica are freed after ``lease`` seconds, and
        any place after ``longest`` seconds, the maximum duration of a request."""
        self._redis = redis
        self._replica = replica
        self._lease_ms = int(lease * 1000)
        self._longest_ms = int(longest * 1000)
        folder = files("api.limits")
        self._reserve = redis.register_script((folder / "reserve.lua").read_text())
        self._settle = redis.register_script((folder / "settle.lua").read_text())
        self._warned: set[tuple[str, LimitName]] = set()
        """The budgets that were logged, and whose they are."""

    def new_name(self) -> str:
        """Return a unique name for a reservation, which includes the replica's id."""
        return f"{uuid.uuid4().hex} {self._replica}"

    async def reserve(self, reservation: Reservation) -> tuple[Refusal | None, dict[LimitName, Counts]]:
        """Reserve one request in the limits of the key and then of the team, or in none.

        Returns the exceeded limit, if any, and the state of the rate limits: of the key's and the team's, the one that
        has less left.

        Raises what redis-py raises when the store is unreachable.
        """
        counts: dict[LimitName, Counts] = {}
        for at, owner in enumerate(owners := reservation.limited):
            limit_number, wait, *state, of_day, of_month = await self._reserve_in(owner, reservation)
            self._warn(owner, (of_day, of_month))
            limits = (owner.requests_per_minute, owner.tokens_per_minute)
            for bucket, (name, limit) in enumerate(zip(_NAMES[:2], limits, strict=True)):
                count = Counts(limit or 0, state[2 * bucket], state[2 * bucket + 1] / 1000)
                if limit is not None and (name not in counts or count.remaining < counts[name].remaining):
                    counts[name] = count
            if limit_number:
                for earlier in owners[:at]:
                    await self._settle_in(earlier, reservation, -reservation.tokens, requests=-1)
                return Refusal(_NAMES[limit_number - 1], wait / 1000 if wait else None, by_team=at > 0), counts
        return None, counts

    async def _reserve_in(self, owner: Limited, reservation: Reservation) -> list[int]:
        names = [key(owner.limits_id) for key in (keys.buckets, keys.admitted, keys.spent)]
        limits = (owner.requests_per_minute, owner.tokens_per_minute, owner.concurrency, *owner.budgets)
        arguments: list[str | int | float] = [
            *(reservation.tokens, reservation.place, self._longest_ms, self._replica, self._lease_ms),
            *map(_or_empty, limits),
        ]
        reply: list[int] | int = await self._reserve(names, arguments)
        if isinstance(reply, int):
            leases = await self._redis.zrange(keys.REPLICAS, 0, -1, withscores=True)
            reply = await self._reserve(names, [*arguments, "", *(part for lease in leases for part in lease)])
        return cast("list[int]", reply)

    def _warn(self, owner: Limited, spent: tuple[int, int]) -> None:
        """Log once that a budget of ``owner`` is nearly used up."""
        for name, used, budget in zip(_NAMES[3:], spent, owner.budgets, strict=True):
            if budget is None or used < WARNED_SHARE * budget:
                self._warned.discard((owner.limits_id, name))
            elif (owner.limits_id, name) not in self._warned:
                self._warned.add((owner.limits_id, name))
                period, kind = name.removeprefix("tokens_per_"), "team" if isinstance(owner, Team) else "key"
                logger.warning("%s %s has used %d of its %d tokens per %s", kind, owner.id, used, budget, period)

    async def settle(self, reservation: Reservation, used: int) -> None:
        """Settle a request that used ``used`` tokens. Raises what redis-py raises when the store is unreachable."""
        await asyncio.gather(
            *(self._settle_in(owner, reservation, used - reservation.tokens) for owner in reservation.limited)
        )

    async def _settle_in(self, owner: Limited, reservation: Reservation, tokens: int, requests: int = 0) -> None:
        limits = map(_or_empty, (owner.tokens_per_minute, owner.requests_per_minute))
        names = [keys.buckets(owner.limits_id), keys.admitted(owner.limits_id)]
        await self._settle(names, [tokens, requests, reservation.place, *limits])


def _or_empty(limit: int | None) -> str | int:
    return "" if limit is None else limit
