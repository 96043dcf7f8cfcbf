"""Shares of tenants in the downloads of a replica: connections, and the memory of files that are not in the media store
yet."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from shared.protocol.errors import ProblemKind, RequestRefused, refuse

_RETRY = 1.0
"""``Retry-After`` in seconds."""


class _Tenant:
    """What the requests of a tenant use."""

    def __init__(self, connections: int) -> None:
        self.connections = asyncio.Semaphore(connections)
        self.requests = 0
        self.bytes = 0


class DownloadShare:
    """The share of one request in what its tenant uses."""

    def __init__(self, shares: "DownloadShares", tenant: _Tenant) -> None:
        self._shares = shares
        self._tenant = tenant
        self.bytes = 0
        """Number of bytes that were downloaded."""

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[None]:
        """Occupy a connection. Raises :class:`RequestRefused` if those of the tenant stay occupied."""
        try:
            async with asyncio.timeout(self._shares.patience):
                await self._tenant.connections.acquire()
        except TimeoutError:
            raise _refusal("You are downloading too many images at a time.") from None
        try:
            yield
        finally:
            self._tenant.connections.release()

    def add(self, size: int) -> None:
        """Count ``size`` bytes that were received. Raises :class:`RequestRefused` if there is no memory for them."""
        self.bytes += size
        self._tenant.bytes += size
        self._shares.bytes += size
        if self._tenant.bytes > self._shares.tenant_bytes:
            raise _refusal("The images that you are downloading are too large together.")
        if self._shares.bytes > self._shares.all_bytes:
            raise _refusal("The images of all requests that are being downloaded are too large together.")


class DownloadShares:
    """Bounds the downloads of each tenant, so that none can keep all others waiting, and the memory of all."""

    def __init__(self, *, connections: int, tenant_bytes: int, all_bytes: int, patience: float) -> None:
        """``connections`` is the maximum number of concurrent downloads of a tenant, and ``patience`` how many seconds
        one more waits. ``tenant_bytes`` and ``all_bytes`` are the maximum sizes of the files of a tenant, and of all
        tenants, until they are in the media store."""
        self._connections = connections
        self.tenant_bytes = tenant_bytes
        self.all_bytes = all_bytes
        self.patience = patience
        self.bytes = 0
        """Number of bytes that requests use."""
        self._tenants: dict[str, _Tenant] = {}

    @contextmanager
    def request(self, tenant: str) -> Iterator[DownloadShare]:
        """Return the share of a request of ``tenant``, which holds its files until the context ends."""
        uses = self._tenants.setdefault(tenant, _Tenant(self._connections))
        uses.requests += 1
        share = DownloadShare(self, uses)
        try:
            yield share
        finally:
            self.bytes -= share.bytes
            uses.bytes -= share.bytes
            uses.requests -= 1
            if not uses.requests:
                del self._tenants[tenant]


def _refusal(why: str) -> RequestRefused:
    return refuse(ProblemKind.QUEUE_FULL, f"{why} Please try again later.", retry_after=_RETRY)
