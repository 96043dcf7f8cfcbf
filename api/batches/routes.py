"""Batches: create, list, describe and cancel them."""

from functools import partial

from quart import Blueprint, Response, request

from api.batches import forms as dialect
from api.batches.record import UNFINISHED, Batch
from api.batches.store import TooManyBatches
from api.dialects.base.lists import unknown_cursor
from api.files import FilesTooLarge, TooManyFiles
from api.files.forms import not_found as file_not_found
from api.files.forms import too_large as files_too_large
from api.files.forms import too_many as too_many_files
from api.http.exchange import key_owner
from api.http.json_response import json_response
from api.replica import current_replica

blueprint = Blueprint("batches", __name__)


@blueprint.post("/v1/batches")
async def create_batch() -> Response:
    """Create a batch from an uploaded file. It is validated in the background."""
    replica, owner = current_replica(), key_owner()
    now = await replica.batches.now()
    batch = await replica.body_parser.read(request, owner, partial(dialect.parse_batch, owner=owner, now=now))
    file = await replica.files.get(owner, batch.input_file)
    if file is None or file.purpose != "batch":
        raise file_not_found(batch.input_file, "input_file_id")
    try:
        await replica.files.require_room(owner, for_results=True)
        await replica.batches.create(batch)
    except TooManyFiles:
        raise too_many_files(2 * replica.settings.max_files, param=None) from None
    except FilesTooLarge:
        raise files_too_large(2 * replica.settings.max_files_bytes, param=None) from None
    except TooManyBatches:
        raise dialect.too_many(replica.settings.max_batches) from None
    return json_response(dialect.render_batch(batch))


@blueprint.get("/v1/batches")
async def list_batches() -> Response:
    """List batches, paginated."""
    after, limit = dialect.parse_page(request.args)
    page = await current_replica().batches.select(key_owner(), after=after, limit=limit)
    if page is None:
        raise unknown_cursor(after or "")
    return json_response(dialect.render_batches(page.batches, more=page.more))


@blueprint.get("/v1/batches/<batch_id>")
async def get_batch(batch_id: str) -> Response:
    """Describe a batch."""
    return json_response(dialect.render_batch(await _find(batch_id)))


@blueprint.post("/v1/batches/<batch_id>/cancel")
async def cancel_batch(batch_id: str) -> Response:
    """Cancel a batch. What was served until then is in its result files."""
    batch = await _find(batch_id)
    if batch.status in UNFINISHED:
        await current_replica().batches.cancel(batch)
        batch = await _find(batch_id)
    elif batch.status != "cancelling":
        raise dialect.not_cancellable(batch)
    return json_response(dialect.render_batch(batch))


async def _find(batch_id: str) -> Batch:
    batch = await current_replica().batches.get(key_owner(), batch_id)
    if batch is None:
        raise dialect.not_found(batch_id)
    return batch
