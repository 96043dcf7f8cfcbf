"""Pages of records that an index in the store lists by age."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from redis.asyncio import Redis

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
) -> tuple[list[_Found], bool] | None:
    """Return up to ``limit`` records, and whether there are more; None if ``index`` has no entry ``after``.

    ``read`` returns the wanted ones of the records with these names, of which up to ``scan`` are read at a time. Raises
    what redis-py raises.
    """
    start = 0
    if after is not None:
        place = await (redis.zrevrank if newest_first else redis.zrank)(index, after)
        if place is None:
            return None
        start = place + 1
    found: list[_Found] = []
    while len(found) <= limit:
        names = await redis.zrange(index, start, start + scan - 1, desc=newest_first)
        if not names:
            break
        start += len(names)
        found += await read([name.decode() for name in names])
    return found[:limit], len(found) > limit
