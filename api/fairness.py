"""Sharing between tenants: places, bytes of memory, and a thread for what would block the event loop."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from shared.protocol.errors import ProblemKind, refuse

_RETRY = 1.0
"""``Retry-After`` in seconds."""


class FairPlaces:
    """A number of places, such as that of the only thread of a kind."""

    def __init__(self, places: int, *, share: int) -> None:
        """``share`` is the maximum number of places of a tenant."""
        self._free = places
        self._share = share
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """Who waits, by tenant, in the order in which the tenants get the next places."""

    @asynccontextmanager
    async def of(self, tenant: str, *, patience: float | None = None, full: str = "") -> AsyncIterator[None]:
        """Occupy a place of ``tenant`` until the context ends. Waits, and raises, as :meth:`take` does."""
        await self.take(tenant, patience=patience, full=full)
        try:
            yield
        finally:
            self.free(tenant)

    async def take(self, tenant: str, *, patience: float | None, full: str) -> None:
        """Occupy a place of ``tenant`` until :meth:`free` is called. Waits for one if there is none.

        Raises :class:`RequestRefused`, with the reason ``full``, if there is none after ``patience`` seconds.
        """
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(turn)
        self._hand_out()
        try:
            async with asyncio.timeout(patience):
                await turn
        except BaseException as error:
            if not turn.cancel() and not turn.cancelled():
                self.free(tenant)
            if isinstance(error, TimeoutError):
                message = f"{full} Please try again later."
                raise refuse(ProblemKind.QUEUE_FULL, message, retry_after=_RETRY) from None
            raise

    def free(self, tenant: str) -> None:
        """Leave a place that ``tenant`` occupies."""
        self._free += 1
        self._held -= Counter((tenant,))
        self._hand_out()

    def _hand_out(self) -> None:
        for tenant in list(self._waiting):
            if not self._free:
                return
            if self._held[tenant] >= self._share:
                continue
            waiting = self._waiting.pop(tenant)
            while waiting and waiting[0].done():  # Cancelled.
                waiting.popleft()
            if waiting:
                self._free -= 1
                self._held[tenant] += 1
                waiting.popleft().set_result(None)
            if waiting:
                self._waiting[tenant] = waiting  # After the others.


NO_KEY = ""
"""The tenant of all requests without a key. It may use everything, because there is no other tenant."""


@dataclass(slots=True)
class _Usage:
    """What a tenant holds."""

    bytes: int = 0
    holdings: int = 0


class TenantBytes:
    """Counts the bytes that requests hold. A tenant's only request that holds any may exceed the tenant's share."""

    def __init__(self, total: int, *, share: int | None = None, full: str) -> None:
        """``total`` is the maximum of all tenants, ``share`` that of one with several requests; None for as much as it
        leaves free. ``full`` is the message of the refusal."""
        self._total = total
        self._share = share
        self._full = full
        self.bytes = 0
        self._usages: dict[str, _Usage] = {}

    def holding(self, tenant: str) -> "Holding":
        """Return what a request of ``tenant`` holds: nothing yet."""
        return Holding(self, tenant)

    def add(self, tenant: str, size: int, *, first: bool) -> None:
        """Count ``size`` bytes, the ``first`` ones of a request or more.

        Raises :class:`RequestRefused` if there is no room for them; they count nevertheless, until :meth:`remove`.
        """
        usage = self._usages.setdefault(tenant, _Usage())
        usage.bytes += size
        usage.holdings += first
        self.bytes += size
        share = self._total - self.bytes if self._share is None else self._share
        within_share = tenant == NO_KEY or usage.holdings == 1 or usage.bytes <= share
        if self.bytes > self._total or not within_share:
            raise refuse(ProblemKind.QUEUE_FULL, self._full, retry_after=_RETRY)

    def remove(self, tenant: str, size: int) -> None:
        """Count no longer the ``size`` bytes of a request."""
        usage = self._usages[tenant]
        usage.bytes -= size
        usage.holdings -= 1
        self.bytes -= size
        if not usage.holdings:
            del self._usages[tenant]


class Holding:
    """The bytes of one request. A context manager that releases them."""

    # One instance per open stream.
    __slots__ = ("_of", "bytes", "tenant")

    def __init__(self, of: TenantBytes, tenant: str) -> None:
        self._of = of
        self.tenant = tenant
        self.bytes = 0

    def add(self, size: int) -> None:
        """Hold ``size`` bytes more. Raises :class:`RequestRefused` if there is no room for them."""
        if size:
            first, self.bytes = not self.bytes, self.bytes + size
            self._of.add(self.tenant, size, first=first)

    def release(self) -> None:
        """Hold nothing any more."""
        if self.bytes:
            self._of.remove(self.tenant, self.bytes)
            self.bytes = 0

    def __enter__(self) -> "Holding":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


SMALL = 64 * 1024
"""Size in bytes up to which work is done in the event loop: it takes at most some milliseconds."""

_Result = TypeVar("_Result")


class FairThread:
    """Does one piece of work after the other, in turn for each tenant.

    Parsing 1 MB with many small values takes up to a second of CPU time. In a thread, the event loop gets the
    interpreter back every few milliseconds: measured with 2,000 messages of 18 parts, its longest pause was a
    thirtieth. With two threads it was three times as long as with one.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "large")
        self._turns = FairPlaces(1, share=1)

    async def run(self, tenant: str, size: int, work: Callable[[], _Result]) -> _Result:
        """Return the result of ``work``, whose time is at most proportional to ``size``, in bytes."""
        if size <= SMALL:
            return work()
        async with self._turns.of(tenant):
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
