"""Reading and summing what keys have used."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from redis.asyncio import Redis

from shared.protocol.usage import UsageCounts
from shared.redis import keys
from shared.redis.records import skipped_unreadable

_Group = TypeVar("_Group")

Stored = Mapping[bytes, bytes]
"""A day's usage, as the store has it."""


class DailyUsage(NamedTuple):
    """What a key used of a model on one day (:mod:`shared.protocol.usage`). ``key`` is empty without one.

    ``team`` is the one that the key belonged to, or empty.
    """

    day: int
    key: str
    team: str
    batch: bool
    model: str
    counts: UsageCounts


async def read_days(redis: Redis, days: Iterable[int]) -> Sequence[Stored]:
    """Return the usage of each of ``days``. Raises what redis-py raises when the store is unreachable."""
    async with redis.pipeline(transaction=False) as pipe:
        for day in days:
            pipe.hgetall(keys.usage(str(day)))
        found: list[Stored] = await pipe.execute()
    return found


def decoded(day: int, stored: Stored) -> Iterator[DailyUsage]:
    """Yield what is in ``stored``. Unreadable records are reported and skipped."""
    for name, counts in stored.items():
        with skipped_unreadable(f"{keys.usage(str(day))} {name!r}"):
            account, kind, model = name.decode().split(" ", 2)
            key, _, team = account.partition("@")
            yield DailyUsage(day, key, team, kind == "batch", model, UsageCounts.decode(counts))


def summed(found: Iterable[DailyUsage], group: Callable[[DailyUsage], _Group]) -> dict[_Group, UsageCounts]:
    sums: dict[_Group, UsageCounts] = {}
    for one in found:
        of = group(one)
        sums[of] = sums[of] + one.counts if of in sums else one.counts
    return sums
