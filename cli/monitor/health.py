"""``vinoqueue health``: the health check of containers and service managers.

It checks the process on this host only. It runs every few seconds, so it imports as little as possible.
"""

from http.client import HTTPConnection, HTTPException

import click

from cli.base.options import option
from shared.runtime.settings import ApiSettings

TIMEOUT = 3.0
"""Seconds to wait for the API's response."""


@click.group()
def health() -> None:
    """Check the API on this host; the exit code is 0 if it is healthy, else 1.

    \b
    vinoqueue health api
    """


@health.command("api", params=[option(ApiSettings, "host"), option(ApiSettings, "port")])
def api(host: str, port: int) -> None:
    """Check that the API responds on its port."""
    try:
        status = get(host, port, "/live", timeout=TIMEOUT)
    except (OSError, HTTPException) as error:
        raise click.ClickException(f"the API on port {port} does not respond: {error}") from None
    if status != 200:
        raise click.ClickException(f"the API on port {port} responds to /live with {status}.")


def get(host: str, port: int, path: str, *, timeout: float) -> int:
    """Return the HTTP status of ``GET path`` from a server that listens on ``host``.

    Raises :class:`OSError` or :class:`http.client.HTTPException` if there is no valid response.
    """
    connection = HTTPConnection(reachable(host), port, timeout=timeout)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


def reachable(host: str) -> str:
    """Return the address for local connections to a server that listens on ``host``: a wildcard becomes loopback."""
    return {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
