"""Routes for the fleet view: the state of the whole service, once or as a stream of events."""

import asyncio
from collections.abc import AsyncIterator

from quart import Blueprint, Response

from api.chat.responder import stream_response
from api.fleet.watch import Watcher
from api.http.exchange import current_exchange, key_owner, require_admin
from api.http.json_response import json_response
from api.replica import Replica, current_replica

blueprint = Blueprint("fleet", __name__)


@blueprint.get("/v1/fleet")
async def fleet() -> Response:
    """Describe models, queues, workers and replicas."""
    require_admin()
    return json_response(await current_replica().fleet.snapshot())


@blueprint.get("/v1/fleet/events")
async def fleet_events() -> Response:
    """Stream the same document, twice a second."""
    require_admin()
    replica = current_replica()
    watcher = Watcher(replica.fleet)
    await current_exchange().enter(watcher)
    return stream_response(_events(replica, watcher, key_owner()))


async def _events(replica: Replica, watcher: Watcher, owner: str) -> AsyncIterator[bytes]:
    """Yield the events until the replica drains, the owner's key ends, or a response may last no longer."""
    try:
        async with asyncio.timeout(replica.settings.request_timeout):
            async for document in watcher.documents():
                yield b"data: " + document + b"\n\n"
                if replica.draining.draining or not replica.keyring.allows(owner):
                    return
    except TimeoutError:
        return
