"""An HTTP client of the API for commands, on the standard library, and the options that choose the API."""

from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click
import msgspec

from cli.base.instances import running
from shared.runtime.logs import escaped

_TIMEOUT = 60.0
"""Seconds without any data after which the API counts as unreachable."""

Body = bytes | Iterator[bytes] | None

_Command = TypeVar("_Command", bound=Callable[..., Any])


class ApiClient:
    """Sends requests to the API at one URL. Methods raise :class:`click.ClickException`."""

    def __init__(self, url: str, key: str) -> None:
        """``url`` is the base URL, with or without ``/v1``; if empty, that of ``vinoqueue up`` on this machine."""
        url = base_url(url)
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise click.ClickException(f"--url is malformed: {url}")
        self._url = parts
        self._root = parts.path.rstrip("/").removesuffix("/v1")
        self._headers = {"authorization": f"Bearer {key}"} if key else {}

    def json(self, method: str, path: str, body: Body = None, headers: dict[str, str] | None = None) -> dict[str, Any]:
        connection = self.connect()
        try:
            response = self.send(connection, method, path, body, headers)
            return msgspec.json.decode(response.read(), type=dict[str, Any])
        except (OSError, HTTPException, msgspec.DecodeError) as error:
            raise self.unreachable(error) from None
        finally:
            connection.close()

    def connect(self, *, timeout: float | None = _TIMEOUT) -> HTTPConnection:
        """Return a connection, which is opened by its first request. The caller closes it.

        ``timeout`` is in seconds without any data; None waits as long as it takes.
        """
        kind = HTTPSConnection if self._url.scheme == "https" else HTTPConnection
        return kind(self._url.hostname or "", self._url.port, timeout=timeout)

    def send(
        self,
        connection: HTTPConnection,
        method: str,
        path: str,
        body: Body = None,
        headers: dict[str, str] | None = None,
    ) -> HTTPResponse:
        """Return the response if its status is 200. Raises :class:`OSError` and :class:`HTTPException` too."""
        try:
            connection.request(method, self._root + path, body, self._headers | (headers or {}))
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused before the end of the body; the response says why
        response = connection.getresponse()
        if response.status == 200:
            return response
        text = response.read()
        try:
            message = msgspec.json.decode(text)["error"]["message"]
        except (msgspec.DecodeError, KeyError, TypeError):
            message = f"the API responded to {path} with {response.status}"
        raise click.ClickException(escaped(str(message)))

    def unreachable(self, error: Exception) -> click.ClickException:
        return click.ClickException(
            f"The API at {self._url.geturl()} can't be reached: {error}. Is --url (OPENAI_BASE_URL) right?"
        )


def api_options(command: _Command) -> _Command:
    """Add the options ``--url`` and ``--api-key``, from which an :class:`ApiClient` is made."""
    url = click.option(
        "--url",
        envvar="OPENAI_BASE_URL",
        default="",
        help="URL of the API; default: that of 'vinoqueue up' on this machine, or port 8000.  [env: OPENAI_BASE_URL]",
    )
    key = click.option("--api-key", envvar="OPENAI_API_KEY", default="", help="API key.  [env: OPENAI_API_KEY]")
    return url(key(command))


def base_url(url: str) -> str:
    """Return ``url``, or that of ``vinoqueue up`` on this machine if it is empty."""
    if url:
        return url
    ports = [instance.port for instance in running()]
    if len(ports) > 1:
        raise click.UsageError(
            f"'vinoqueue up' runs {len(ports)} times on this machine, on the ports {', '.join(ports)}. "
            "Choose one: --url http://127.0.0.1:PORT"
        )
    return f"http://127.0.0.1:{ports[0] if ports else 8000}"
