"""Routes for operators: health probes, metrics and the OpenAPI document."""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
from arq.connections import ArqRedis
from quart import Response, request
from redis.exceptions import RedisError

from api.chat.relay import Relay
from api.chat.streams import OpenStreams
from api.http.routes import json_response, route
from api.models.directory import Directory
from api.operations.metrics import Metrics
from shared.runtime.version import VERSION


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The state of this replica and its view of the fleet."""

    status: str
    version: str
    replica: str
    store: str
    models: list[str]
    workers: int
    open_answers: int


@dataclass(frozen=True, slots=True)
class OperationsHandler:
    redis: ArqRedis
    directory: Directory
    relay: Relay
    streams: OpenStreams
    collected: Metrics
    document: Callable[[], bytes]
    """Returns the OpenAPI document."""
    replica: str
    """The id of this replica."""

    @route("GET", "/live", "live")
    @route("GET", "/v2/health/live", "kserveLive")
    async def live(self) -> Response:
        """Liveness probe: succeeds while the process serves HTTP."""
        return _json({"status": "ok"})

    @route("GET", "/ready", "ready", errors=(503,))
    @route("GET", "/v2/health/ready", "kserveReady", errors=(503,))
    async def ready(self) -> Response:
        """Whether a chat would be served: as for the replica alone, and a model is served or can be loaded."""
        return _readiness(await self._not_ready())

    @route("GET", "/ready/replica", "ready_replica", errors=(503,))
    async def ready_replica(self) -> Response:
        """Readiness probe of this replica alone: the store responds, and the replica is not draining."""
        return _readiness(await self._replica_not_ready())

    @route("GET", "/health", "health", errors=(503,))
    async def health(self) -> Response:
        """Readiness with details: store, models, workers and open streams."""
        reason = await self._not_ready()
        state = Health(
            status=f"unavailable: {reason}" if reason else "ok",
            version=VERSION,
            replica=self.replica,
            store="up" if self.directory.reachable else "down",
            models=list(self.directory.fleet.serving()),
            workers=len(self.directory.fleet.workers),
            open_answers=len(self.streams),
        )
        return _json(state, 503 if reason else 200)

    @route("GET", "/metrics", "metrics", returns=("text/plain",))
    async def metrics(self) -> Response:
        """Metrics in Prometheus' text format, or in OpenMetrics format for clients that accept it."""
        page, content_type = self.collected.page(request.headers.get("accept", ""))
        return Response(page, content_type=content_type)

    @route("GET", "/openapi.json", "openapi")
    async def openapi(self) -> Response:
        """The OpenAPI document."""
        return json_response(self.document())

    async def _not_ready(self) -> str:
        reason = await self._replica_not_ready()
        if not reason and not self.directory.fleet.can_serve():
            await self.directory.refresh()
            if not self.directory.fleet.can_serve():
                return "no worker serves"
        return reason

    async def _replica_not_ready(self) -> str:
        if self.streams.draining:
            return "shutting down"
        try:
            await self.redis.ping()
        except (RedisError, OSError):
            return "the store can't be reached"
        if not self.relay.listening:
            return "not subscribed to the workers' frames yet"
        return ""


def _readiness(reason: str) -> Response:
    if reason:
        return _json({"status": "unavailable", "reason": reason}, 503)
    return _json({"status": "ok"})


def _json(value: object, status: int = 200) -> Response:
    return json_response(msgspec.json.encode(value), status)
