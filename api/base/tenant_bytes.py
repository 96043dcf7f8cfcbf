"""Bytes that tenants share, such as the memory for what a replica downloads or parses."""

from dataclasses import dataclass

from shared.protocol.errors import ProblemKind, refuse

NO_KEY = ""
"""The tenant of all requests without a key. It may use everything, because there is no other tenant."""

_RETRY = 1.0
"""``Retry-After`` in seconds."""


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
        """Number of bytes that are held."""
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
