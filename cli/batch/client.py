"""A client of the API's files and batches."""

import uuid
from collections.abc import Callable, Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import msgspec

from cli.base.api_client import ApiClient

_PIECE = 256 * 1024


class Client:
    """Sends requests to ``/v1/files`` and ``/v1/batches``. Methods raise :class:`click.ClickException`."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    def upload(self, file: Path, progress: Callable[[int], None]) -> str:
        """Upload ``file``; return its id. ``progress`` is called with the number of bytes of each piece."""
        boundary = uuid.uuid4().hex
        name = quote(file.name, safe="-._ ")
        head = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
        ).encode()
        tail = f"\r\n--{boundary}--\r\n".encode()

        def body() -> Iterator[bytes]:
            yield head
            with file.open("rb") as content:
                while piece := content.read(_PIECE):
                    yield piece
                    progress(len(piece))
            yield tail

        headers = {
            "content-type": f"multipart/form-data; boundary={boundary}",
            "content-length": str(len(head) + file.stat().st_size + len(tail)),
        }
        return str(self._api.json("POST", "/v1/files", body(), headers)["id"])

    def create(self, file_id: str, endpoint: str, metadata: dict[str, str]) -> dict[str, Any]:
        asked = {
            "input_file_id": file_id,
            "endpoint": endpoint,
            "completion_window": "24h",
            "metadata": metadata,
        }
        return self._api.json("POST", "/v1/batches", msgspec.json.encode(asked), {"content-type": "application/json"})

    def get(self, batch_id: str) -> dict[str, Any]:
        return self._api.json("GET", f"/v1/batches/{quote(batch_id, safe='')}")

    def cancel(self, batch_id: str) -> dict[str, Any]:
        return self._api.json("POST", f"/v1/batches/{quote(batch_id, safe='')}/cancel")

    def batches(self) -> Iterator[dict[str, Any]]:
        """Yield all batches, newest first."""
        after = ""
        while True:
            page = self._api.json("GET", f"/v1/batches?limit=100{after}")
            yield from page["data"]
            if not page["has_more"]:
                return
            after = f"&after={page['last_id']}"

    def size(self, file_id: str) -> int:
        return int(self._api.json("GET", f"/v1/files/{file_id}")["bytes"])

    def download(self, file_id: str, target: Path, progress: Callable[[int], None]) -> None:
        """Write the content of a file to ``target``, which appears when it is complete."""
        partial = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
        connection = self._api.connect()
        try:
            response = self._api.send(connection, "GET", f"/v1/files/{file_id}/content")
            with partial.open("wb") as content:
                while piece := response.read(_PIECE):
                    content.write(piece)
                    progress(len(piece))
            partial.replace(target)
        except (OSError, HTTPException) as error:
            raise click.ClickException(f"{target.name} can't be downloaded: {error}") from None
        finally:
            partial.unlink(missing_ok=True)
            connection.close()
