"""A client of the service's files and batches, on the standard library's HTTP."""

import uuid
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import click
import msgspec

_TIMEOUT = 60.0
"""Seconds without any data after which the service counts as unreachable."""

_PIECE = 256 * 1024


class Client:
    """Sends requests to ``/v1/files`` and ``/v1/batches``. Methods raise :class:`click.ClickException`."""

    def __init__(self, url: str, key: str) -> None:
        """``url`` is the base URL, with or without ``/v1``."""
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise click.ClickException(f"--url is malformed: {url}")
        self._url = parts
        self._root = parts.path.rstrip("/").removesuffix("/v1")
        self._headers = {"authorization": f"Bearer {key}"} if key else {}

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
        return str(self._json("POST", "/v1/files", body(), headers)["id"])

    def create(self, file_id: str, endpoint: str, metadata: dict[str, str]) -> dict[str, Any]:
        """Create a batch."""
        asked = {
            "input_file_id": file_id,
            "endpoint": endpoint,
            "completion_window": "24h",
            "metadata": metadata,
        }
        return self._json("POST", "/v1/batches", msgspec.json.encode(asked), {"content-type": "application/json"})

    def get(self, batch_id: str) -> dict[str, Any]:
        """Return a batch."""
        return self._json("GET", f"/v1/batches/{quote(batch_id, safe='')}")

    def cancel(self, batch_id: str) -> dict[str, Any]:
        """Cancel a batch."""
        return self._json("POST", f"/v1/batches/{quote(batch_id, safe='')}/cancel")

    def batches(self) -> Iterator[dict[str, Any]]:
        """Yield all batches, newest first."""
        after = ""
        while True:
            page = self._json("GET", f"/v1/batches?limit=100{after}")
            yield from page["data"]
            if not page["has_more"]:
                return
            after = f"&after={page['last_id']}"

    def size(self, file_id: str) -> int:
        """Return the size of a file in bytes."""
        return int(self._json("GET", f"/v1/files/{file_id}")["bytes"])

    def download(self, file_id: str, target: Path, progress: Callable[[int], None]) -> None:
        """Write the content of a file to ``target``, which appears when it is complete."""
        partial = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
        connection = self._connect()
        try:
            answer = self._send(connection, "GET", f"/v1/files/{file_id}/content")
            with partial.open("wb") as content:
                while piece := answer.read(_PIECE):
                    content.write(piece)
                    progress(len(piece))
            partial.replace(target)
        except (OSError, HTTPException) as error:
            raise click.ClickException(f"{target.name} can't be downloaded: {error}") from None
        finally:
            partial.unlink(missing_ok=True)
            connection.close()

    def _json(
        self, method: str, path: str, body: bytes | Iterator[bytes] | None = None, headers: dict[str, str] | None = None
    ) -> dict[str, Any]:
        connection = self._connect()
        try:
            answer = self._send(connection, method, path, body, headers)
            return msgspec.json.decode(answer.read(), type=dict[str, Any])
        except (OSError, HTTPException, msgspec.DecodeError) as error:
            raise click.ClickException(
                f"The API at {self._url.geturl()} can't be reached: {error}. Is --url (OPENAI_BASE_URL) right?"
            ) from None
        finally:
            connection.close()

    def _connect(self) -> HTTPConnection:
        kind = HTTPSConnection if self._url.scheme == "https" else HTTPConnection
        return kind(self._url.hostname or "", self._url.port, timeout=_TIMEOUT)

    def _send(
        self,
        connection: HTTPConnection,
        method: str,
        path: str,
        body: bytes | Iterator[bytes] | None = None,
        headers: dict[str, str] | None = None,
    ) -> HTTPResponse:
        """Return the response if its status is 200."""
        try:
            connection.request(method, self._root + path, body, self._headers | (headers or {}))
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused before the end of the body; the response says why
        answer = connection.getresponse()
        if answer.status == 200:
            return answer
        text = answer.read()
        try:
            message = msgspec.json.decode(text)["error"]["message"]
        except (msgspec.DecodeError, KeyError, TypeError):
            message = f"the API answered {path} with {answer.status}"
        raise click.ClickException(str(message))
