"""A queue that tenants share by CPU seconds: fair order, and a budget for each tenant."""

import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

SHARE = 0.25
"""Seconds of CPU time per second that a tenant's budget grows by."""

BURST = 15.0
"""Maximum budget in seconds of CPU time."""

MAX_BACKLOG = 30.0
"""Maximum CPU time in seconds that the waiting items of a tenant are expected to need."""

_MIN_RETRY = 1.0
"""Minimum time in seconds after which a tenant that is refused should try again."""

_WEIGHT = 0.25
"""Weight of the last item in the average cost of a tenant's items."""

Item = TypeVar("Item")


class ShareUsedUp(Exception):
    """A tenant has used up its share. ``retry_after`` is in seconds."""

    def __init__(self, retry_after: float) -> None:
        super().__init__(f"the share is used up; try again after {retry_after:.1f} s")
        self.retry_after = max(retry_after, _MIN_RETRY)


class _Tenant(Generic[Item]):
    """The waiting items of a tenant, and what its earlier ones have cost."""

    def __init__(self, now: float) -> None:
        self.waiting: deque[Item] = deque()
        self.tag = 0.0
        """Start tag of its next item, in seconds of CPU time."""
        self.average = 0.0
        """Average cost of its recent items in seconds of CPU time."""
        self._budget = BURST
        self._updated = now

    def budget(self, now: float) -> float:
        """Return the remaining CPU time in seconds. Negative: the tenant has used more than its share."""
        self._budget = min(BURST, self._budget + SHARE * (now - self._updated))
        self._updated = now
        return self._budget

    def charge(self, seconds: float, now: float) -> None:
        """Record a cost."""
        self._budget = self.budget(now) - seconds
        self.tag += seconds
        self.average += _WEIGHT * (seconds - self.average)


class FairQueue(Generic[Item]):
    """Orders the items of tenants by start-time fair queueing: the next one is of the tenant that has used the least.

    The cost of an item is known only after it was served, and items are served one at a time. No tenant accumulates
    credit while it is idle. A tenant without budget is served, but its new items are refused while a tenant with
    budget waits. The number of waiting items is bounded by the CPU time that they are expected to need.
    """

    def __init__(self, *, strict: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        """With ``strict``, a tenant without budget is refused even if no other one waits."""
        self._strict = strict
        self._clock = clock
        self._tenants: dict[str, _Tenant[Item]] = {}
        self._virtual = 0.0
        """Start tag of the last item that was served."""

    def add(self, name: str, item: Item) -> None:
        """Add an item of the tenant ``name``. Raises :class:`ShareUsedUp`."""
        now = self._clock()
        if name not in self._tenants:
            self._forget_idle(now)
        tenant = self._tenant(name, now)
        budget = tenant.budget(now)
        if budget <= 0 and (self._strict or self._waits_with_budget(now)):
            raise ShareUsedUp(-budget / SHARE)
        if (excess := tenant.average * (len(tenant.waiting) + 1) - MAX_BACKLOG) > 0:
            raise ShareUsedUp(excess)
        if not tenant.waiting:
            tenant.tag = max(tenant.tag, self._virtual)
        tenant.waiting.append(item)

    def add_first(self, name: str, item: Item) -> None:
        """Return an item that was taken to the head of its tenant's queue."""
        self._tenant(name, self._clock()).waiting.appendleft(item)

    def take(self) -> Item | None:
        """Remove and return the next item, if there is one."""
        now = self._clock()
        waiting = [tenant for tenant in self._tenants.values() if tenant.waiting]
        if not waiting:
            return None
        tenant = min(waiting, key=lambda tenant: (tenant.tag, -tenant.budget(now)))
        self._virtual = max(self._virtual, tenant.tag)
        return tenant.waiting.popleft()

    def charge(self, name: str, seconds: float) -> None:
        """Charge the tenant ``name`` with ``seconds`` of CPU time for its last item."""
        now = self._clock()
        tenant = self._tenant(name, now)
        tenant.charge(seconds, now)
        if not any(tenant.waiting for tenant in self._tenants.values()):
            self._virtual = max(self._virtual, tenant.tag)

    def remove(self, name: str) -> list[Item]:
        waiting = self._tenant(name, self._clock()).waiting
        items = list(waiting)
        waiting.clear()
        return items

    def clear(self) -> list[Item]:
        return [item for name in list(self._tenants) for item in self.remove(name)]

    def _tenant(self, name: str, now: float) -> _Tenant[Item]:
        tenant = self._tenants.get(name)
        if tenant is None:
            tenant = self._tenants[name] = _Tenant(now)
            tenant.tag = self._virtual
        return tenant

    def _waits_with_budget(self, now: float) -> bool:
        return any(tenant.waiting and tenant.budget(now) > 0 for tenant in self._tenants.values())

    def _forget_idle(self, now: float) -> None:
        for name, tenant in list(self._tenants.items()):
            if not tenant.waiting and tenant.budget(now) == BURST and tenant.tag <= self._virtual:
                del self._tenants[name]
