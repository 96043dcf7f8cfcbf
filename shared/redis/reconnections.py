"""Reconnections after a planned failover, when the store's address leads to another server."""

from collections.abc import Callable


class Reconnections:
    """Reports to the connections of a process that one of them was lost, or refused as that of a replica.

    Connections that still work may lead to the demoted server, which answers reads and PINGs, but gets neither writes
    nor published messages any more. So each connects again before it is used next, and subscriptions do at once: when a
    connection is lost, and once more when it is open again, because only then the address leads to the new master.
    Pools are treated as subscriptions: who only reads would not learn that a server is demoted.
    """

    def __init__(self) -> None:
        self._connections: list[Callable[[], None]] = []
        self._subscriptions: list[Callable[[], None]] = []

    def add_connection(self, lost: Callable[[], None]) -> None:
        """Have ``lost`` called when another connection is lost."""
        self._connections.append(lost)

    def add_subscription(self, renew: Callable[[], None]) -> None:
        """Have ``renew`` called when a connection is lost, and when it is open again."""
        self._subscriptions.append(renew)

    def remove_subscription(self, renew: Callable[[], None]) -> None:
        """Undo :meth:`add_subscription`."""
        self._subscriptions.remove(renew)

    def lost(self, by: Callable[[], None] | None = None) -> None:
        """Report to all but ``by`` that a connection was lost."""
        for connection in self._connections:
            if connection != by:
                connection()
        self.opened()

    def opened(self) -> None:
        """Report to subscriptions that a connection is open again."""
        for renew in tuple(self._subscriptions):
            renew()
