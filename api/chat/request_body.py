"""Reading the bodies of chat requests, which may have images."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from quart import request

from api.base.fair_places import FairPlaces
from api.chat.response_size import check_response_size
from api.dialects.base.interface import MessagesMissing
from api.http.bodies import LARGE_BODIES, LARGE_BODIES_OF_TENANT, check_body_size, media_body
from api.http.body_parser import BodyParser
from api.http.exchange import key_owner
from api.models.directory import Directory
from api.models.lookup import ModelLookup
from shared.protocol.request import ChatRequest
from shared.runtime.settings import ApiSettings

_Parsed = TypeVar("_Parsed")


class RequestBodies:
    """Reads and parses the bodies of chat requests."""

    def __init__(self, parser: BodyParser, directory: Directory, models: ModelLookup, settings: ApiSettings) -> None:
        self._parser = parser
        self._directory = directory
        self._models = models
        self._settings = settings
        self._places = FairPlaces(LARGE_BODIES, share=LARGE_BODIES_OF_TENANT)
        """The places of bodies larger than ``max_body`` (see :mod:`api.http.bodies`)."""

    async def read(self, parse: Callable[[bytes], _Parsed]) -> tuple[_Parsed, int]:
        """Read the body of the current HTTP request; return what ``parse`` makes of it, and its size in bytes.

        It may be large, so nothing refers to it afterwards. Raises :class:`RequestRefused`.
        """
        tenant = key_owner()
        place = self._places.of(tenant) if self._directory.fleet.reads_images() else None
        async with media_body(request, self._settings, place) as body:
            size = len(body)
            try:
                return await self._parser.run(tenant, size, partial(parse, body)), size
            except MessagesMissing as missing:
                await self._models.require(missing.model)
                raise

    def check(self, parsed: ChatRequest, size: int) -> None:
        """Raise :class:`RequestRefused` if the body of a request may not have ``size`` bytes, or if the request asks
        for a response that is too large."""
        check_body_size(size, parsed, self._settings.max_body)
        check_response_size(parsed, self._settings)
