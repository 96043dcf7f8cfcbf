"""Shares of tenants in what a replica has for downloads: places, and the memory of files that are not queued yet."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from shared.protocol.errors import ProblemKind, RequestRefused, refuse

NO_KEY = ""
"""The tenant of all requests without a key. It has no share, because there is no other."""

_RETRY = 1.0
"""``Retry-After`` in seconds."""


class _Tenant:
    """What a tenant occupies, and how many tasks wait or occupy something."""

    def __init__(self, places: int) -> None:
        self.places = asyncio.Semaphore(places)
        self.users = 0


class Places:
    """Places that tenants share, in order of arrival. Each has a part of them, so it keeps no other one waiting."""

    def __init__(self, total: int, *, share: int, patience: float, full: str) -> None:
        """A tenant may occupy ``share`` of ``total`` places. A task waits for one ``patience`` seconds, and is then
        refused with the reason ``full``."""
        self._total = total
        self._share = share
        self._patience = patience
        self._full = full
        self._places = asyncio.Semaphore(total)
        self._tenants: dict[str, _Tenant] = {}

    async def acquire(self, tenant: str) -> None:
        """Occupy a place; the caller must :meth:`release` it. Raises :class:`RequestRefused` if all stay occupied."""
        own = self._tenants.setdefault(tenant, _Tenant(self._total if tenant == NO_KEY else self._share))
        own.users += 1
        try:
            async with asyncio.timeout(self._patience):
                await own.places.acquire()
                try:
                    # At most as many tasks of a tenant wait here as it has places.
                    await self._places.acquire()
                except BaseException:
                    own.places.release()
                    raise
        except BaseException as error:
            self._leave(tenant, own)
            if isinstance(error, TimeoutError):
                raise _refusal(self._full) from None
            raise

    def release(self, tenant: str) -> None:
        """Free a place that ``tenant`` occupies."""
        own = self._tenants[tenant]
        self._places.release()
        own.places.release()
        self._leave(tenant, own)

    def _leave(self, tenant: str, own: _Tenant) -> None:
        own.users -= 1
        if not own.users:
            del self._tenants[tenant]


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
