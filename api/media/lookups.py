"""Lookups of host names, in threads of their own: a name whose servers never answer occupies one for half a minute."""

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress

from api.media.data_url import MediaError
from api.media.shares import Places

MAX_LOOKUPS = 32
"""Maximum number of concurrent lookups."""

_SHARE = 4
"""Maximum number of those of a tenant."""

_SHOWN = 100


class Lookups:
    """Looks up the addresses of hosts, within each tenant's share of threads."""

    def __init__(self, *, patience: float) -> None:
        """``patience`` is how many seconds a lookup waits for a thread."""
        full = "The names of too many image hosts are being looked up."
        self._places = Places(MAX_LOOKUPS, share=_SHARE, patience=patience, full=full)

    async def addresses(self, host: str, port: int, *, tenant: str) -> Sequence[str]:
        """Return the addresses of ``host``.

        Raises :class:`MediaError` if there is none, and :class:`RequestRefused` if no thread becomes free.
        """
        with suppress(ValueError):
            return [str(ipaddress.ip_address(host))]
        await self._places.acquire(tenant)
        loop = asyncio.get_running_loop()
        found: asyncio.Future[Sequence[str]] = loop.create_future()

        def end(addresses: Sequence[str] | None) -> None:
            # Now, and not when the caller gives up: the thread has been busy until now.
            self._places.release(tenant)
            if not found.done():
                if addresses:
                    found.set_result(addresses)
                else:
                    found.set_exception(MediaError(f"the host '{host[:_SHOWN]}' can't be resolved"))

        def look_up() -> None:
            addresses = _addresses(host, port)
            with suppress(RuntimeError):  # the event loop has been closed
                loop.call_soon_threadsafe(end, addresses)

        # Not in an executor: at its end, a process waits for the threads of all executors.
        threading.Thread(target=look_up, name="lookup", daemon=True).start()
        return await found


def _addresses(host: str, port: int) -> Sequence[str] | None:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return None
    return [str(address[0]) for *_, address in found]
