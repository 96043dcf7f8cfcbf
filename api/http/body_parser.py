"""Parsing of request bodies. Large ones are parsed outside of the event loop."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from quart import Request

from api.base.fair_thread import SMALL, FairThread
from api.base.tenant_bytes import TenantBytes
from api.http.bodies import TOO_MANY_LARGE_BODIES, read_json_body
from shared.runtime.settings import ApiSettings

_ALL_BYTES = 16
_TENANT_BYTES = 4
"""Maximum size of the bodies that wait or are parsed, of all tenants and of one, in multiples of the maximum size of a
body without images. A tenant's only one may be larger."""

_Parsed = TypeVar("_Parsed")


class BodyParser:
    """Parses bodies, and bounds what waits for it."""

    def __init__(self, settings: ApiSettings, thread: FairThread) -> None:
        self._settings = settings
        self._thread = thread
        self._bytes = TenantBytes(
            max(_ALL_BYTES * settings.max_body, settings.max_media_body),
            share=_TENANT_BYTES * settings.max_body,
            full=TOO_MANY_LARGE_BODIES,
        )

    async def read(self, request: Request, tenant: str, parse: Callable[[bytes], _Parsed]) -> _Parsed:
        """Read the body of ``request`` as :func:`api.http.bodies.read_json_body` does, and parse it."""
        body = await read_json_body(request, self._settings)
        return await self.run(tenant, len(body), partial(parse, body))

    async def run(self, tenant: str, size: int, parse: Callable[[], _Parsed]) -> _Parsed:
        """Return the result of ``parse``, whose input has ``size`` bytes. Its time is at most proportional to it.

        Raises :class:`RequestRefused` if too many bytes wait, and what ``parse`` raises.
        """
        if size <= SMALL:
            return parse()
        with self._bytes.holding(tenant) as holding:
            holding.add(size)
            return await self._thread.run(tenant, size, parse)
