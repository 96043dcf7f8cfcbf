"""A thread for what would block the event loop: large bodies and responses.

Parsing 1 MB with many small values takes up to a second of CPU time. In a thread, the event loop gets the interpreter
back every few milliseconds: measured with 2,000 messages of 18 parts, its longest pause was a thirtieth. With two
threads it was three times as long as with one.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from api.base.fair_places import FairPlaces

SMALL = 64 * 1024
"""Size in bytes up to which work is done in the event loop: it takes at most some milliseconds."""

_Result = TypeVar("_Result")


class FairThread:
    """Does one piece of work after the other, in turn for each tenant."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "large")
        self._turns = FairPlaces(1, share=1)

    async def run(self, tenant: str, size: int, work: Callable[[], _Result]) -> _Result:
        """Return the result of ``work``, whose time is at most proportional to ``size``, in bytes."""
        if size <= SMALL:
            return work()
        async with self._turns.of(tenant):
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
