"""Files: upload, list, describe, read and delete them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import BinaryIO

from quart import Response, request
from werkzeug.exceptions import RequestEntityTooLarge

from api.dialects.base.lists import render_deleted
from api.files import forms as dialect
from api.files.folder import in_storage
from api.files.record import FileRecord, new_file_id
from api.files.storage import FileWriter
from api.files.store import FileStore
from api.files.upload import FORM_OVERHEAD, Upload, boundary_of, file_too_large, receive
from api.http.exchange import connection_extension, key_owner
from api.http.guards import CrossOrigin
from api.http.routes import STORE_ERRORS, json_response, route
from shared.protocol.errors import ProblemKind, RequestRefused, refuse
from shared.runtime.settings import ApiSettings

_PIECE = 256 * 1024
"""Bytes read at a time."""

UPLOAD_TIMEOUT = 600.0
"""Maximum time to receive an uploaded file, in seconds."""


class FilesHandler:
    def __init__(
        self,
        files: FileStore,
        batch_reading: Callable[[str, str], Awaitable[str | None]],
        cross_origin: CrossOrigin,
        settings: ApiSettings,
    ) -> None:
        """``batch_reading`` returns the id of an unfinished batch of an owner whose input is a file."""
        self._files = files
        self._batch_reading = batch_reading
        self._cross_origin = cross_origin
        self._settings = settings

    @route("POST", "/v1/files", "createFile", form=dialect.UploadForm, errors=(*STORE_ERRORS, 403, 408, 413, 415, 429))
    async def create(self) -> Response:
        """Upload a file."""
        self._cross_origin.refuse_foreign(request.headers, "upload files")
        settings = self._settings
        boundary = boundary_of(request.headers.get("content-type", ""))
        if (request.content_length or 0) > settings.max_file_bytes + FORM_OVERHEAD:
            raise file_too_large(settings.max_file_bytes)
        async with self._files.uploading(key_owner(), max(0, (request.content_length or 0) - FORM_OVERHEAD)):
            record = await self._store(boundary)
        return json_response(dialect.render_file(record))

    async def _store(self, boundary: bytes) -> FileRecord:
        """Receive the file in the request's form, and add it."""
        settings = self._settings
        storage = await self._files.storage()
        connection = connection_extension(request)
        if connection is not None:
            connection["allow_upload"](settings.max_file_bytes + FORM_OVERHEAD, UPLOAD_TIMEOUT)
        writer = await in_storage(storage.create)
        try:
            upload = await self._received(boundary, writer)
            form = dialect.parse_upload(upload)
            now = int(await self._files.now())
            record = FileRecord(
                id=new_file_id(),
                owner=key_owner(),
                filename=form.filename,
                size=upload.size,
                purpose="batch",
                created=now,
                expires=now + form.retention,
            )
            await in_storage(lambda: writer.commit(record.id))
        finally:
            await asyncio.to_thread(writer.discard)
        try:
            await self._files.add(record)
        except RequestRefused as refusal:
            # If the store is unavailable, the record may have been added.
            if refusal.problem.kind is not ProblemKind.STORE_UNAVAILABLE:
                await in_storage(lambda: storage.remove(record.id))
            raise
        return record

    @route("GET", "/v1/files", "listFiles", query=dialect.FilesQuery, errors=STORE_ERRORS)
    async def list(self) -> Response:
        """List files, filtered and paginated."""
        wanted = dialect.parse_query(request.args)
        files, more = await self._files.select(
            key_owner(),
            after=wanted.after,
            limit=wanted.limit,
            newest_first=wanted.order == "desc",
            purpose=wanted.purpose,
        )
        return json_response(dialect.render_files(files, more=more))

    @route("GET", "/v1/files/<file_id>", "retrieveFile", errors=STORE_ERRORS)
    async def get(self, file_id: str) -> Response:
        """Describe a file."""
        return json_response(dialect.render_file(await self._find(file_id)))

    @route(
        "GET", "/v1/files/<file_id>/content", "downloadFile", returns=("application/octet-stream",), errors=STORE_ERRORS
    )
    async def get_content(self, file_id: str) -> Response:
        """Return the content of a file."""
        record = await self._find(file_id)
        try:
            file = await self._files.open(record)
        except FileNotFoundError:
            raise dialect.not_found(file_id) from None
        # Nothing is read for HEAD, which has no body.
        # Chunked: with a Content-Length, a client could send its next request before the end of this response is
        # noticed, and connections do not support that. A browser must not interpret what clients have uploaded.
        if request.method == "HEAD":
            file.close()
        response = Response(b"" if request.method == "HEAD" else _pieces(file), content_type="application/octet-stream")
        response.headers["content-disposition"] = "attachment"
        response.headers["x-content-type-options"] = "nosniff"
        response.timeout = None
        return response

    @route("DELETE", "/v1/files/<file_id>", "deleteFile", errors=STORE_ERRORS)
    async def delete(self, file_id: str) -> Response:
        """Delete a file. The input of an unfinished batch is not deleted."""
        batch = await self._batch_reading(key_owner(), file_id)
        if batch is not None:
            raise refuse(
                ProblemKind.INVALID,
                f"The file is the input of the unfinished batch {batch}. Cancel the batch, or delete the file when it "
                "has ended.",
                code="file_in_use",
            )
        if not await self._files.delete(key_owner(), file_id):
            raise dialect.not_found(file_id)
        return json_response(render_deleted(file_id, "file"))

    async def _received(self, boundary: bytes, writer: FileWriter) -> Upload:
        """Write the file in the request's form. Raises :class:`RequestRefused`."""
        settings = self._settings

        async def write(data: bytes) -> None:
            await in_storage(lambda: writer.write(data))

        try:
            async with asyncio.timeout(UPLOAD_TIMEOUT):
                return await receive(request.body, boundary, write, limit=settings.max_file_bytes)
        except RequestEntityTooLarge:
            raise file_too_large(settings.max_file_bytes) from None
        except TimeoutError:
            raise refuse(ProblemKind.TIMEOUT, "The file was received too slowly.") from None

    async def _find(self, file_id: str) -> FileRecord:
        record = await self._files.get(key_owner(), file_id)
        if record is None:
            raise dialect.not_found(file_id)
        return record


async def _pieces(file: BinaryIO) -> AsyncIterator[bytes]:
    with file:
        while piece := await asyncio.to_thread(file.read, _PIECE):
            yield piece
