"""Routes for the fleet: its state, once or as a stream of events, and commands to its workers."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Literal

import msgspec
from quart import Response, request
from redis.asyncio import Redis

from api.chat.routes import stream_response
from api.chat.streams import OpenStreams
from api.fleet.commands import CommandIgnored, UnknownWorker, command_worker
from api.fleet.watch import FleetWatch, Watcher
from api.http.exchange import actor, current_exchange, key_owner, require_admin
from api.http.guards import CrossOrigin
from api.http.routes import STORE_ERRORS, json_response, route
from api.keys import Keyring
from api.records.errors import store_errors
from shared.protocol.errors import ProblemKind, refuse


@dataclass(frozen=True, slots=True)
class FleetHandler:
    fleet: FleetWatch
    redis: Redis
    streams: OpenStreams
    keyring: Keyring
    cross_origin: CrossOrigin
    timeout: float
    """Maximum duration of a stream in seconds."""

    @route("GET", "/v1/fleet", "fleet", schema="FleetDocument", errors=(401, 403))
    async def get(self) -> Response:
        """Describe models, queues, workers and replicas."""
        require_admin()
        return json_response(await self.fleet.snapshot())

    @route("GET", "/v1/fleet/events", "fleetEvents", returns=("text/event-stream",), errors=(401, 403))
    async def stream(self) -> Response:
        """Stream the state of the service twice a second, as server-sent events with a fleet document each."""
        require_admin()
        watcher = Watcher(self.fleet)
        await current_exchange().enter(watcher)
        return stream_response(self._events(watcher, key_owner()))

    @route("POST", "/v1/fleet/workers/<worker>/drain", "drainWorker", errors=(*STORE_ERRORS, 403))
    async def drain(self, worker: str) -> Response:
        """Have a worker claim no more requests. Those that it runs finish, or other workers continue them."""
        return await self._command(worker, "drain")

    @route("POST", "/v1/fleet/workers/<worker>/resume", "resumeWorker", errors=(*STORE_ERRORS, 403))
    async def resume(self, worker: str) -> Response:
        """Have a drained worker claim requests again."""
        return await self._command(worker, "resume")

    async def _command(self, worker: str, command: Literal["drain", "resume"]) -> Response:
        """Return the id, the status and the number of requests of the worker once it obeys."""
        require_admin()
        self.cross_origin.refuse_foreign(request.headers, "drain and resume workers")
        async with store_errors():
            try:
                info = await command_worker(self.redis, worker, command, by=actor())
            except UnknownWorker as error:
                raise refuse(ProblemKind.NOT_FOUND, str(error), param="worker") from None
            except CommandIgnored as error:
                raise refuse(ProblemKind.NO_WORKER, str(error)) from None
        return json_response(msgspec.json.encode({"id": info.id, "status": info.status, "used": info.used}))

    async def _events(self, watcher: Watcher, owner: str) -> AsyncIterator[bytes]:
        """Yield the events until the replica drains, the owner's key ends, or a response may last no longer."""
        try:
            async with asyncio.timeout(self.timeout):
                async for document in watcher.documents():
                    yield b"data: " + document + b"\n\n"
                    if self.streams.draining or not self.keyring.allows(owner):
                        return
        except TimeoutError:
            return
