"""Batches: create, list, describe and cancel them."""

from functools import partial

from quart import Response, request

from api.batches import forms as dialect
from api.batches.record import UNFINISHED, Batch
from api.batches.store import BatchStore
from api.dialects.base.query import validate_query
from api.dialects.base.routes import Body
from api.files.forms import not_found as file_not_found
from api.files.store import FileStore
from api.http.bodies import BodyParser
from api.http.exchange import actor, key_owner
from api.http.routes import STORE_ERRORS, json_response, route

_CREATE_ERRORS = (*STORE_ERRORS, 408, 413, 415, 429)


class BatchesHandler:
    def __init__(self, batches: BatchStore, files: FileStore, parser: BodyParser) -> None:
        self._batches = batches
        self._files = files
        self._parser = parser

    @route("POST", "/v1/batches", "createBatch", body=Body(dialect.CreateBatchRequest), errors=_CREATE_ERRORS)
    async def create(self) -> Response:
        """Create a batch from an uploaded file. It is validated in the background."""
        owner = key_owner()
        now = await self._batches.now()
        batch = await self._parser.read(request, owner, partial(dialect.parse_batch, owner=owner, now=now))
        file = await self._files.get(owner, batch.input_file)
        if file is None or file.purpose != "batch":
            raise file_not_found(batch.input_file, "input_file_id")
        await self._files.require_room(owner, for_results=True)
        await self._files.keep(file, batch.expires)
        await self._batches.create(batch)
        return json_response(dialect.render_batch(batch))

    @route("GET", "/v1/batches", "listBatches", query=dialect.BatchesQuery, errors=STORE_ERRORS)
    async def list(self) -> Response:
        """List batches, paginated."""
        wanted = validate_query(dialect.BatchesQuery, request.args)
        batches, more = await self._batches.select(key_owner(), after=wanted.after, limit=wanted.limit)
        return json_response(dialect.render_batches(batches, more=more))

    @route("GET", "/v1/batches/<batch_id>", "retrieveBatch", errors=STORE_ERRORS)
    async def get(self, batch_id: str) -> Response:
        """Describe a batch."""
        return json_response(dialect.render_batch(await self._find(batch_id)))

    @route("POST", "/v1/batches/<batch_id>/cancel", "cancelBatch", errors=STORE_ERRORS)
    async def cancel(self, batch_id: str) -> Response:
        """Cancel a batch. What was served until then is in its result files."""
        batch = await self._find(batch_id)
        if batch.status in UNFINISHED:
            await self._batches.cancel(batch, by=actor())
            batch = await self._find(batch_id)
        elif batch.status != "cancelling":
            raise dialect.not_cancellable(batch)
        return json_response(dialect.render_batch(batch))

    async def _find(self, batch_id: str) -> Batch:
        batch = await self._batches.get(key_owner(), batch_id)
        if batch is None:
            raise dialect.not_found(batch_id)
        return batch
