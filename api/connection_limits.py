"""Bounds on the number of open connections: in total, and per client address."""

import ipaddress
import logging
import time
from typing import Protocol

logger = logging.getLogger(__name__)

RESERVE = 64
"""Connections accepted beyond the bounds. They get answers to probes, and 503 to everything else."""

_OTHER_FILES = 64
"""File descriptors kept for everything that is not a client: the store, logs, sockets being closed."""

_MINIMUM = 16
"""Connections that are allowed however few files the process may open."""

_WARNING_INTERVAL = 60.0
"""Seconds between two warnings about a bound that has been reached."""


class Connection(Protocol):
    """What the limits need to know about a connection."""

    @property
    def address(self) -> str:
        """The client's IP address."""

    def abort(self) -> None:
        """Close at once."""

    def expire(self, now: float) -> None:
        """Act on the deadline of the connection's state if it is before ``now``, in seconds of the event loop's
        clock."""


class ConnectionLimits:
    """The open connections of one replica.

    A connection that waits for a request gives way to a new one when the replica is full. Where none waits, or the
    client's address has its share, the new connection is a *surplus* one: one of at most :data:`RESERVE`, the oldest of
    which gives way in turn.
    """

    def __init__(self, total: int, per_address: int) -> None:
        """``per_address`` is 0 for no bound of its own."""
        self._total = total
        self._per_address = per_address or float("inf")
        self._open: set[Connection] = set()
        self._by_address: dict[str, int] = {}
        # In order of their coming, so that the oldest is the first.
        self._waiting: dict[Connection, None] = {}
        self._surplus: dict[Connection, None] = {}
        self._warned = float("-inf")

    def __len__(self) -> int:
        """How many are open, surplus ones included."""
        return len(self._open)

    def add(self, connection: Connection) -> bool:
        """Count a new connection, which waits for its first request. False when it is a surplus one."""
        source = _source(connection.address)
        count = self._by_address.get(source, 0)
        self._open.add(connection)
        self._by_address[source] = count + 1
        if count >= self._per_address:
            self._warn(f"{source} has {count} connections (--max-connections-per-address)")
            return self._add_surplus(connection)
        if len(self._open) - len(self._surplus) > self._total:
            self._warn(f"{self._total} connections are open (--max-connections)")
            if not self._waiting:
                return self._add_surplus(connection)
            self._drop_oldest(self._waiting)
        self._waiting[connection] = None
        return True

    def remove(self, connection: Connection) -> None:
        """The connection is closed."""
        if connection not in self._open:
            return
        self._open.discard(connection)
        self._waiting.pop(connection, None)
        self._surplus.pop(connection, None)
        source = _source(connection.address)
        self._by_address[source] -= 1
        if not self._by_address[source]:
            del self._by_address[source]

    def set_busy(self, connection: Connection) -> None:
        """A request has come: the connection no longer gives way."""
        self._waiting.pop(connection, None)

    def set_waiting(self, connection: Connection) -> None:
        """The connection serves no request, and gives way to new ones."""
        if connection in self._open and connection not in self._surplus:
            self._waiting[connection] = None

    def expire(self, now: float) -> None:
        """Act on every deadline before ``now``, in seconds of the event loop's clock."""
        for connection in list(self._open):
            connection.expire(now)

    def _add_surplus(self, connection: Connection) -> bool:
        if len(self._surplus) >= RESERVE:
            self._drop_oldest(self._surplus)
        self._surplus[connection] = None
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


def most_connections(wanted: int, open_files: int | None) -> int:
    """Return ``wanted``, or what a process that may open ``open_files`` files can serve, if that is less."""
    if open_files is None:
        return wanted
    return min(wanted, max(_MINIMUM, open_files - RESERVE - _OTHER_FILES))


def _source(address: str) -> str:
    """What the bound per address counts by: an IPv4 address, or the /64 network of an IPv6 one, as a single client
    usually has a whole network."""
    if ":" not in address:
        return address
    parsed = ipaddress.IPv6Address(address.partition("%")[0])
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(parsed) >> 64 << 64, 64)))
