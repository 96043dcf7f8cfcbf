"""Pages of records that an index in the store lists by age."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from redis.asyncio import Redis

from shared.protocol.errors import ProblemKind, RequestRefused, refuse

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

    ``read`` returns the wanted ones of the records with these names, of which up to ``scan`` are read at a time. Raises
    :class:`RequestRefused` if ``index`` has no entry ``after``, and what redis-py raises.
    """
    start = 0
    if after is not None:
        place = await (redis.zrevrank if newest_first else redis.zrank)(index, after)
        if place is None:
            raise unknown_cursor(after)
        start = place + 1
    found: list[_Found] = []
    while len(found) <= limit:
        names = await redis.zrange(index, start, start + scan - 1, desc=newest_first)
        if not names:
            break
        start += len(names)
        found += await read([name.decode() for name in names])
    return found[:limit], len(found) > limit


def unknown_cursor(after: str) -> RequestRefused:
    message = f"Invalid 'after': nothing with id '{after[:64]}' found."
    return refuse(ProblemKind.INVALID, message, param="after", code="invalid_value")
