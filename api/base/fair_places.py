"""Places that tenants share: each may have some of them, and those that wait get one tenant by tenant."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

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
    async def of(self, tenant: str) -> AsyncIterator[None]:
        """Occupy a place of ``tenant`` until the context ends. Waits for one if there is none."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(turn)
        self._hand_out()
        try:
            await turn
            yield
        finally:
            if turn.done() and not turn.cancelled():
                self._free += 1
                self._held -= Counter((tenant,))
                self._hand_out()

    @asynccontextmanager
    async def of_soon(self, tenant: str, *, patience: float, full: str) -> AsyncIterator[None]:
        """Occupy a place as :meth:`of` does.

        Raises :class:`RequestRefused`, with the reason ``full``, if ``tenant`` has none after ``patience`` seconds.
        """
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(patience):
                    await held.enter_async_context(self.of(tenant))
            except TimeoutError:
                message = f"{full} Please try again later."
                raise refuse(ProblemKind.QUEUE_FULL, message, retry_after=_RETRY) from None
            yield

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
