"""Shares of tenants in what a replica has for downloads: places, and the memory of files that are not queued yet."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

from api.base.fair_places import FairPlaces
from shared.protocol.errors import ProblemKind, RequestRefused, refuse

NO_KEY = ""
"""The tenant of all requests without a key. It may use all memory, because there is no other tenant."""

_RETRY = 1.0
"""``Retry-After`` in seconds."""


@asynccontextmanager
async def place(places: FairPlaces, tenant: str, *, patience: float, full: str) -> AsyncIterator[None]:
    """Occupy one of ``places``. Raises :class:`RequestRefused`, with the reason ``full``, if ``tenant`` has none after
    ``patience`` seconds."""
    async with AsyncExitStack() as held:
        try:
            async with asyncio.timeout(patience):
                await held.enter_async_context(places.of(tenant))
        except TimeoutError:
            raise _refusal(full) from None
        yield


class _Usage:
    """The bytes of a tenant's requests, and their number."""

    def __init__(self) -> None:
        self.bytes = 0
        self.requests = 0


class MemoryShare:
    """The bytes of one request."""

    def __init__(self, memory: "Memory", tenant: str, usage: _Usage) -> None:
        self.tenant = tenant
        self._memory = memory
        self._usage = usage
        self.bytes = 0

    def add(self, size: int) -> None:
        """Count ``size`` bytes. Raises :class:`RequestRefused` if there is no room for them."""
        self.bytes += size
        self._usage.bytes += size
        self._memory.bytes += size
        free = self._memory.limit - self._memory.bytes
        within_share = self.tenant == NO_KEY or self._usage.requests == 1 or self._usage.bytes <= free
        if free < 0 or not within_share:
            raise _refusal("Too many bytes of images are being downloaded.")


class Memory:
    """Memory that tenants share: one with several requests may occupy as much as it leaves free for others."""

    def __init__(self, limit: int) -> None:
        """``limit`` is the number of bytes for all tenants."""
        self.limit = limit
        self.bytes = 0
        """Number of bytes that are occupied."""
        self._usages: dict[str, _Usage] = {}

    @contextmanager
    def request(self, tenant: str) -> Iterator[MemoryShare]:
        """Yield what a request of ``tenant`` occupies until the context ends."""
        usage = self._usages.setdefault(tenant, _Usage())
        usage.requests += 1
        share = MemoryShare(self, tenant, usage)
        try:
            yield share
        finally:
            self.bytes -= share.bytes
            usage.bytes -= share.bytes
            usage.requests -= 1
            if not usage.requests:
                del self._usages[tenant]


def _refusal(why: str) -> RequestRefused:
    return refuse(ProblemKind.QUEUE_FULL, f"{why} Please try again later.", retry_after=_RETRY)
