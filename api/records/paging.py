"""Pages of records that an index in the store lists by age."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from redis.asyncio import Redis

from shared.protocol.errors import ProblemKind, RequestRefused, refuse
from shared.redis import keys

_Found = TypeVar("_Found")


async def read_page(
    redis: Redis,
    index: str,
    read: Callable[[list[str]], Awaitable[list[_Found]]],
    *,
    after: str | None,
    limit: int,
    scan: int,
    newest_first: bool = True,
) -> tuple[list[_Found], bool]:
    """Return up to ``limit`` records, and whether there are more.

    ``read`` returns the wanted ones of the records with these names, of which up to ``scan`` are read at a time.
    ``after`` is an entry of ``index``, or was one when a page ended with it (:func:`keep_place`). Raises
    :class:`RequestRefused` if it is neither, and what redis-py raises.
    """
    start = 0 if after is None else await _start(redis, index, after, newest_first=newest_first)
    found: list[_Found] = []
    while len(found) <= limit:
        names = await redis.zrange(index, start, start + scan - 1, desc=newest_first)
        if not names:
            break
        start += len(names)
        found += await read([name.decode() for name in names])
    return found[:limit], len(found) > limit


async def keep_place(redis: Redis, index: str, last: str) -> None:
    """Remember the place of ``last``, the last entry of a page, so that the next page is found after its deletion."""
    score = await redis.zscore(index, last)
    if score is not None:
        await redis.set(keys.cursor(index, last), repr(score), ex=_PLACE_KEPT)


_PLACE_KEPT = 3600
"""For how many seconds the place of a page's last entry is remembered."""


async def _start(redis: Redis, index: str, after: str, *, newest_first: bool) -> int:
    """Return the rank of the first entry after ``after``. Raises :class:`RequestRefused`."""
    place = await (redis.zrevrank if newest_first else redis.zrank)(index, after)
    if place is not None:
        return int(place) + 1
    kept = await redis.get(keys.cursor(index, after))
    if kept is None:
        raise unknown_cursor(after)
    score = float(kept)
    equal = await redis.zrangebyscore(index, score, score)
    before = await redis.zcount(index, "-inf", f"({score!r}") + sum(name < after.encode() for name in equal)
    return int(await redis.zcard(index) - before if newest_first else before)


def unknown_cursor(after: str) -> RequestRefused:
    message = f"Invalid 'after': nothing with id '{after[:64]}' found."
    return refuse(ProblemKind.INVALID, message, param="after", code="invalid_value")
