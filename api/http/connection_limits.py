"""Limits on the number of open connections: in total, and per client address."""

import ipaddress
import logging
import time
from typing import Protocol

logger = logging.getLogger(__name__)

RESERVE = 64
"""Connections accepted beyond the limits. They are served only probes and metrics, and get 503 for everything else."""

_OTHER_FILES = 64
"""File descriptors reserved for everything but clients: the store, logs, closing sockets."""

_MINIMUM = 16
"""Minimum number of connections, regardless of the limit of open files."""

_WARNING_INTERVAL = 60.0
"""Minimum interval in seconds between two warnings."""


class Connection(Protocol):
    """A connection, as far as the limits use it."""

    @property
    def address(self) -> str:
        """The client's IP address."""

    def abort(self) -> None:
        """Close immediately."""

    def retire(self) -> None:
        """Close as soon as there is no request."""

    def expire(self, now: float) -> None:
        """Close if the deadline of the connection's state is before ``now``, in seconds of the event loop's clock, or
        send a ping if one is due."""


class ConnectionLimits:
    """The open connections of one replica.

    At the total limit, a new connection replaces the oldest one without a request. If there is none, or the client's
    address is at its limit, the new connection is *over the limit*. There are at most :data:`RESERVE` such
    connections; a new one replaces the oldest.
    """

    def __init__(self, total: int, per_address: int) -> None:
        """``per_address`` is 0 for no limit per address."""
        self._total = total
        self._per_address = per_address or float("inf")
        self._open: set[Connection] = set()
        self._by_address: dict[str, int] = {}
        # In order of arrival, so that the first is the oldest.
        self._waiting: dict[Connection, None] = {}
        self._over_limit: dict[Connection, None] = {}
        self._warned = float("-inf")
        self.closing = False
        """Whether connections close after their next response, because the replica ends."""

    def __len__(self) -> int:
        """Return the number of open connections, including those over a limit."""
        return len(self._open)

    def add(self, connection: Connection) -> bool:
        """Add a new connection without a request. Return False if it is over a limit."""
        source = _source(connection.address)
        count = self._by_address.get(source, 0)
        self._open.add(connection)
        self._by_address[source] = count + 1
        if count >= self._per_address:
            self._warn(f"{source} has {count} connections (--max-connections-per-address)")
            return self._add_over_limit(connection)
        if len(self._open) - len(self._over_limit) > self._total:
            self._warn(f"{self._total} connections are open (--max-connections)")
            if not self._waiting:
                return self._add_over_limit(connection)
            self._drop_oldest(self._waiting)
        self._waiting[connection] = None
        return True

    def remove(self, connection: Connection) -> None:
        if connection not in self._open:
            return
        self._open.discard(connection)
        self._waiting.pop(connection, None)
        self._over_limit.pop(connection, None)
        source = _source(connection.address)
        self._by_address[source] -= 1
        if not self._by_address[source]:
            del self._by_address[source]

    def set_busy(self, connection: Connection) -> None:
        """Mark a connection as serving a request; it is no longer replaced."""
        self._waiting.pop(connection, None)

    def set_waiting(self, connection: Connection) -> None:
        """Mark a connection as without a request; new ones may replace it."""
        if connection in self._open and connection not in self._over_limit:
            self._waiting[connection] = None

    def retire(self) -> None:
        """Close each connection as soon as it has no request."""
        self.closing = True
        for connection in list(self._open):
            connection.retire()

    def expire(self, now: float) -> None:
        """Close connections whose deadline is before ``now``, in seconds of the event loop's clock."""
        for connection in list(self._open):
            connection.expire(now)

    def _add_over_limit(self, connection: Connection) -> bool:
        if len(self._over_limit) >= RESERVE:
            self._drop_oldest(self._over_limit)
        self._over_limit[connection] = None
        return False

    def _drop_oldest(self, group: dict[Connection, None]) -> None:
        oldest = next(iter(group))
        self.remove(oldest)
        oldest.abort()

    def _warn(self, reason: str) -> None:
        now = time.monotonic()
        if now - self._warned >= _WARNING_INTERVAL:
            self._warned = now
            logger.warning("new connections are refused or replace idle ones: %s", reason)


def max_connections(wanted: int, open_files: int | None) -> int:
    """Return ``wanted``, or the number of connections that ``open_files`` files allow, if that is less."""
    if open_files is None:
        return wanted
    return min(wanted, max(_MINIMUM, open_files - RESERVE - _OTHER_FILES))


def _source(address: str) -> str:
    """Return the unit of the limit per address: an IPv4 address, or the /64 network of an IPv6 address, because a
    single client usually has a whole network."""
    if ":" not in address:
        return address
    parsed = ipaddress.IPv6Address(address.partition("%")[0])
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(parsed) >> 64 << 64, 64)))
