"""Routes for the fleet view: the state of the whole service, once or as a stream of events."""

import asyncio
from collections.abc import AsyncIterator

from quart import Response

from api.chat.handler import stream_response
from api.chat.streams import OpenStreams
from api.fleet.watch import FleetWatch, Watcher
from api.http.exchange import current_exchange, key_owner, require_admin
from api.http.routes import json_response, route
from api.keys import Keyring


class FleetHandler:
    """Models, queues, workers and replicas."""

    def __init__(self, fleet: FleetWatch, streams: OpenStreams, keyring: Keyring, *, timeout: float) -> None:
        """``timeout`` is the maximum duration of a stream in seconds."""
        self._fleet = fleet
        self._streams = streams
        self._keyring = keyring
        self._timeout = timeout

    @route("GET", "/v1/fleet", "fleet", schema="FleetDocument", errors=(401, 403))
    async def get(self) -> Response:
        """Describe models, queues, workers and replicas."""
        require_admin()
        return json_response(await self._fleet.snapshot())

    @route("GET", "/v1/fleet/events", "fleetEvents", returns=("text/event-stream",), errors=(401, 403))
    async def stream(self) -> Response:
        """Stream the state of the service twice a second, as server-sent events with a fleet document each."""
        require_admin()
        watcher = Watcher(self._fleet)
        await current_exchange().enter(watcher)
        return stream_response(self._events(watcher, key_owner()))

    async def _events(self, watcher: Watcher, owner: str) -> AsyncIterator[bytes]:
        """Yield the events until the replica drains, the owner's key ends, or a response may last no longer."""
        try:
            async with asyncio.timeout(self._timeout):
                async for document in watcher.documents():
                    yield b"data: " + document + b"\n\n"
                    if self._streams.draining or not self._keyring.allows(owner):
                        return
        except TimeoutError:
            return
