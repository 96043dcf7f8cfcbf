"""Routes for operators: health probes, metrics and the OpenAPI document."""

import msgspec
from quart import Blueprint, Response, request
from redis.exceptions import RedisError

from api.http.json_response import json_response
from api.operations.openapi import document
from api.replica import current_replica
from shared.runtime.version import VERSION

blueprint = Blueprint("operations", __name__)


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The state of this replica and its view of the fleet."""

    status: str
    version: str
    replica: str
    store: str
    models: list[str]
    workers: int
    open_answers: int


@blueprint.get("/live")
async def live() -> Response:
    """Liveness probe: succeeds while the process serves HTTP."""
    return _json({"status": "ok"})


@blueprint.get("/ready")
async def ready() -> Response:
    """Readiness probe: the store responds, a worker serves, and the replica is not draining."""
    reason = await _not_ready()
    if reason:
        return _json({"status": "unavailable", "reason": reason}, 503)
    return _json({"status": "ok"})


@blueprint.get("/health")
async def health() -> Response:
    """Readiness with details: store, models, workers and open streams."""
    replica = current_replica()
    reason = await _not_ready()
    state = Health(
        status=f"unavailable: {reason}" if reason else "ok",
        version=VERSION,
        replica=replica.id,
        store="up" if replica.directory.reachable else "down",
        models=list(replica.directory.fleet.serving()),
        workers=len(replica.directory.fleet.workers),
        open_answers=len(replica.relay.streams()),
    )
    return _json(state, 503 if reason else 200)


@blueprint.get("/metrics")
async def metrics() -> Response:
    """Metrics in Prometheus' text format, or in OpenMetrics format for clients that accept it."""
    page, content_type = current_replica().metrics.page(request.headers.get("accept", ""))
    return Response(page, content_type=content_type)


@blueprint.get("/openapi.json")
async def openapi() -> Response:
    """The OpenAPI document."""
    return json_response(document())


async def _not_ready() -> str:
    replica = current_replica()
    if replica.draining.draining:
        return "shutting down"
    try:
        await replica.redis.ping()
    except (RedisError, OSError):
        return "the store can't be reached"
    if not replica.relay.listening:
        return "not subscribed to the workers' frames yet"
    if not any(worker.status == "serving" for worker in replica.directory.fleet.workers):
        await replica.directory.refresh()
    if not any(worker.status == "serving" for worker in replica.directory.fleet.workers):
        return "no worker serves"
    return ""


def _json(value: object, status: int = 200) -> Response:
    return json_response(msgspec.json.encode(value), status)
