"""What a replica sets for its process: the socket on which it listens, and the garbage collector."""

import gc
import socket

BACKLOG = 4096
_AT_ONCE = 8
"""Connections accepted in an iteration of the event loop: uvloop accepts one for each listening socket, and in a busy
replica the last of 64 new clients would wait for 64 iterations, or half a second."""
SEND_BUFFER = 128 * 1024
"""Socket send buffer in bytes. When a slow client fills it, deltas are merged in the response stream."""


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket; that of ``::`` accepts IPv4 as well. Raises :class:`OSError`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    both = host == "::" and socket.has_dualstack_ipv6()
    return socket.create_server((host, port), family=family, backlog=BACKLOG, dualstack_ipv6=both)


def listen(host: str, port: int, timeout: float) -> socket.socket:
    """Return a listening socket. Peers that stay unresponsive for ``timeout`` seconds are disconnected by the kernel.

    Raises :class:`OSError`.
    """
    listener = bind(host, port)
    # Accepted connections inherit these options.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
    for option, value in (
        ("TCP_KEEPIDLE", timeout / 2),
        ("TCP_KEEPINTVL", max(1, timeout / 8)),
        ("TCP_KEEPCNT", 4),
        ("TCP_USER_TIMEOUT", timeout * 1000),
    ):
        if hasattr(socket, option):
            listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), max(1, int(value)))
    return listener


def duplicated(listener: socket.socket) -> list[socket.socket]:
    """Return ``listener`` and duplicates of it, from all of which the event loop accepts its connections."""
    return [listener, *(listener.dup() for _ in range(_AT_ONCE - 1))]


_YOUNG = 10_000
"""Threshold of the youngest generation in objects: about sixty new streams, or 2 ms of work."""

_MIDDLE = 5
_OLD = 20
"""Collections of a generation per collection of the next one."""


def collect_rarely() -> None:
    """Collect old objects rarely, and exclude the existing ones.

    A full collection with 5,000 streams pauses the replica for 200 ms, and Python's default thresholds trigger one
    whenever the number of objects has grown by a quarter. It would free little: a request leaves some ten small objects
    in cycles, which young collections find, and reference counting frees the rest.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)
