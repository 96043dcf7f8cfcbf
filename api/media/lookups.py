"""Lookups of host names, in threads of their own: a name whose servers never answer occupies one for half a minute."""

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress

from api.base.fair_places import FairPlaces
from api.media.data_url import MediaError
from shared.runtime.tasks import BackgroundTasks

MAX_LOOKUPS = 32
"""Maximum number of concurrent lookups."""

LOOKUPS_OF_TENANT = 8
"""Maximum number of those of a tenant."""

_SHOWN = 100


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
            # The thread occupies its place until it has an answer, even if nobody waits for that any more.
            occupied = stack.pop_all()
            lookup.add_done_callback(lambda _: self._tasks.run(occupied.aclose(), "end of a lookup"))
        addresses = await asyncio.shield(lookup)
        if not addresses:
            raise MediaError(f"the host '{host[:_SHOWN]}' can't be resolved")
        return addresses


def _look_up(host: str, port: int) -> asyncio.Future[Sequence[str]]:
    """Start a thread; return the future of its answer, which is empty if there is no such host."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Sequence[str]] = loop.create_future()

    def run() -> None:
        addresses = _addresses(host, port)
        with suppress(RuntimeError):  # the event loop has been closed
            loop.call_soon_threadsafe(answer.set_result, addresses)

    # Not in an executor: at its end, a process waits for the threads of all executors.
    threading.Thread(target=run, name="lookup", daemon=True).start()
    return answer


def _addresses(host: str, port: int) -> Sequence[str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ()
    return [str(address[0]) for *_, address in found]
