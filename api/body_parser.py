"""Parsing of request bodies outside of the event loop, so that a large one delays no other client.

A body of 1 MB with many small values takes up to a second of CPU time. In a thread, the event loop gets the interpreter
back every few milliseconds: measured with 2,000 messages of 18 parts, its longest pause was a thirtieth. With two
threads it was three times as long as with one.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from quart import Request

from api.bodies import read_json_body, too_many_large_bodies
from api.fair_places import FairPlaces
from shared.runtime.settings import ApiSettings

SMALL = 64 * 1024
"""Size in bytes up to which a body is parsed in the event loop: it takes at most some milliseconds."""

_ALL_BYTES = 16
_TENANT_BYTES = 4
"""Maximum size of the bodies that wait or are parsed, of all tenants and of one, in multiples of the maximum size of a
body without images. A tenant's only one may be larger."""

_Parsed = TypeVar("_Parsed")


class BodyParser:
    """Parses large bodies in a thread, one after the other and tenant by tenant."""

    def __init__(self, settings: ApiSettings) -> None:
        self._settings = settings
        self._thread = ThreadPoolExecutor(1, "bodies")
        self._turns = FairPlaces(1, share=1)
        self._bytes: Counter[str] = Counter()

    async def read(self, request: Request, tenant: str, parse: Callable[[bytes], _Parsed]) -> _Parsed:
        """Read the body of ``request`` as :func:`api.bodies.read_json_body` does, and parse it."""
        body = await read_json_body(request, self._settings)
        return await self.run(tenant, len(body), partial(parse, body))

    async def run(self, tenant: str, size: int, parse: Callable[[], _Parsed]) -> _Parsed:
        """Return the result of ``parse``, whose input has ``size`` bytes. Its time is at most proportional to it.

        Raises :class:`RequestRefused` if too many bytes wait, and what ``parse`` raises.
        """
        if size <= SMALL:
            return parse()
        own, everyone = self._bytes[tenant], self._bytes.total()
        if (own and own + size > _TENANT_BYTES * self._settings.max_body) or (
            everyone and everyone + size > _ALL_BYTES * self._settings.max_body
        ):
            raise too_many_large_bodies()
        self._bytes[tenant] += size
        try:
            async with self._turns.of(tenant):
                return await asyncio.get_running_loop().run_in_executor(self._thread, parse)
        finally:
            self._bytes -= Counter({tenant: size})
