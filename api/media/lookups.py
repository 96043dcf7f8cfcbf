"""Addresses of hosts: lookups of names, and which addresses are public.

Lookups have threads of their own: a name whose servers never respond occupies one for half a minute.
"""

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress

from api.fairness import FairPlaces
from api.media.data_url import MediaError

MAX_LOOKUPS = 32
"""Maximum number of concurrent lookups."""

LOOKUPS_OF_TENANT = 8
"""Maximum number of those of a tenant."""

_SHOWN = 100

# The standard library's answer depends on the release of Python.
_SPECIAL = tuple(
    map(
        ipaddress.ip_network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",  # private use
            "100.64.0.0/10",  # shared by the customers of a carrier
            "127.0.0.0/8",  # loopback
            "169.254.0.0/16",  # link-local
            "172.16.0.0/12",  # private use
            "192.0.0.0/24",  # IETF protocol assignments
            "192.0.2.0/24",  # documentation
            "192.88.99.0/24",  # 6to4 relays
            "192.168.0.0/16",  # private use
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/3",  # multicast, reserved, broadcast
            "2001::/23",  # IETF protocol assignments, Teredo among them
            "2001:db8::/32",  # documentation
            "3fff::/20",  # documentation
        ),
    )
)
"""Networks that are not public (IANA's special-purpose address registries)."""

_GLOBAL = ipaddress.IPv6Network("2000::/3")
"""All that IANA assigns for global unicast."""

_TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")
_IPV4 = 0xFFFFFFFF


class Lookups:
    """Looks up the addresses of hosts, within each tenant's share of threads."""

    def __init__(self, *, patience: float) -> None:
        """``patience`` is how many seconds a lookup waits for a thread."""
        self._places = FairPlaces(MAX_LOOKUPS, share=LOOKUPS_OF_TENANT)
        self._patience = patience

    async def addresses(self, host: str, port: int, *, tenant: str) -> Sequence[str]:
        """Return the addresses of ``host``.

        Raises :class:`MediaError` if there is none, and :class:`RequestRefused` if no thread becomes free.
        """
        with suppress(ValueError):
            return [str(ipaddress.ip_address(host))]
        full = "The names of too many image hosts are being looked up."
        await self._places.take(tenant, patience=self._patience, full=full)
        lookup = _look_up(host, port)
        # The thread occupies its place until it has a result, even if nobody waits for that any more.
        lookup.add_done_callback(lambda _: self._places.free(tenant))
        addresses = await asyncio.shield(lookup)
        if not addresses:
            raise MediaError(f"the host '{host[:_SHOWN]}' can't be resolved")
        return addresses


def _look_up(host: str, port: int) -> asyncio.Future[Sequence[str]]:
    """Start a thread; return the future of its result, which is empty if there is no such host."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[Sequence[str]] = loop.create_future()

    def run() -> None:
        addresses = _addresses(host, port)
        with suppress(RuntimeError):  # the event loop has been closed
            loop.call_soon_threadsafe(result.set_result, addresses)

    # Not in an executor: at its end, a process waits for the threads of all executors.
    threading.Thread(target=run, name="lookup", daemon=True).start()
    return result


def _addresses(host: str, port: int) -> Sequence[str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ()
    return [str(address[0]) for *_, address in found]


def is_public(address: str) -> bool:
    """Return whether ``address`` is a public unicast one. An IPv6 address that contains an IPv4 address, to which a
    gateway may send packets, is public if that is."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address):
        if (inner := _embedded(parsed)) is not None:
            return is_public(str(inner))
        if parsed not in _GLOBAL:
            return False
    return not any(parsed in network for network in _SPECIAL)


def _embedded(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    if address in _TRANSLATED:
        return ipaddress.IPv4Address(int(address) & _IPV4)
    return address.ipv4_mapped or address.sixtofour
