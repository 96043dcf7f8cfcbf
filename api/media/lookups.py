"""Addresses of hosts: lookups of names, and which addresses are public.

Lookups have threads of their own: a name whose servers never respond occupies one for half a minute.
"""

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress

from api.base.fairness import FairPlaces
from api.media.data_url import MediaError
from shared.runtime.tasks import BackgroundTasks

MAX_LOOKUPS = 32
"""Maximum number of concurrent lookups."""

LOOKUPS_OF_TENANT = 8
"""Maximum number of those of a tenant."""

_SHOWN = 100

_PRIVATE = tuple(
    map(
        ipaddress.ip_network,
        (
            # Python 3.11 takes these for public ones, or does so in some releases.
            "192.0.0.0/24",  # IETF protocol assignments
            "192.88.99.0/24",  # 6to4 relays
            "64:ff9b:1::/48",  # local-use translation to IPv4 (RFC 8215), at any offset
            "100::/64",  # discard
            "2001::/23",  # IETF protocol assignments, Teredo among them
            "2001:db8::/32",  # documentation
            "3fff::/20",  # documentation
            "5f00::/16",  # segment routing
            "fec0::/10",  # site-local
        ),
    )
)
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")
_TRANSLATION_FROM = ipaddress.IPv6Network("::ffff:0:0:0/96")
_IPV4 = 0xFFFFFFFF


class Lookups:
    """Looks up the addresses of hosts, within each tenant's share of threads."""

    def __init__(self, *, patience: float) -> None:
        """``patience`` is how many seconds a lookup waits for a thread."""
        self._places = FairPlaces(MAX_LOOKUPS, share=LOOKUPS_OF_TENANT)
        self._patience = patience
        self._tasks = BackgroundTasks()

    async def addresses(self, host: str, port: int, *, tenant: str) -> Sequence[str]:
        """Return the addresses of ``host``.

        Raises :class:`MediaError` if there is none, and :class:`RequestRefused` if no thread becomes free.
        """
        with suppress(ValueError):
            return [str(ipaddress.ip_address(host))]
        async with AsyncExitStack() as stack:
            full = "The names of too many image hosts are being looked up."
            await stack.enter_async_context(self._places.of_soon(tenant, patience=self._patience, full=full))
            lookup = _look_up(host, port)
            # The thread occupies its place until it has a result, even if nobody waits for that any more.
            occupied = stack.pop_all()
            lookup.add_done_callback(lambda _: self._tasks.run(occupied.aclose(), "end of a lookup"))
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
    """Return whether ``address`` is a public unicast one. An IPv6 address that contains an IPv4 address, from which a
    gateway may send packets to that, is public only if both are."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address):
        inner = _embedded(parsed)
        if inner is not None and not is_public(str(inner)):
            return False
    listed = any(parsed.version == network.version and parsed in network for network in _PRIVATE)
    return parsed.is_global and not parsed.is_multicast and not listed


def _embedded(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if any(address in network for network in (_COMPATIBLE, _TRANSLATED, _TRANSLATION_FROM)):
        return ipaddress.IPv4Address(int(address) & _IPV4)
    return None
