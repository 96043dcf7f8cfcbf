"""``vinoqueue health``: the check that containers and service managers run every few seconds.

It answers for the process on this host only, and imports as little as possible.
"""

from http.client import HTTPConnection, HTTPException

import click

from cli.instances import store_option
from cli.options import option
from shared.runtime.settings import ApiSettings, WorkerSettings

TIMEOUT = 3.0
"""Seconds that the API may take to answer."""


@click.group()
def health() -> None:
    """Tell by the exit code whether this host's API or worker is well: 0 it is, 1 it is not.

    \b
    vinoqueue health api
    vinoqueue health worker
    """


@health.command("api", params=[option(ApiSettings, "host"), option(ApiSettings, "port")])
def api(host: str, port: int) -> None:
    """The API answers on its port."""
    try:
        answer = get(host, port, "/live", timeout=TIMEOUT)
    except (OSError, HTTPException) as error:
        raise click.ClickException(f"the API on port {port} does not answer: {error}") from None
    if answer != 200:
        raise click.ClickException(f"the API on port {port} answers /live with {answer}.")


@health.command("worker", params=[store_option(), option(WorkerSettings, "node")])
def worker(redis_url: str, node: str) -> None:
    """A worker advertises itself from this node, and is not failing."""
    from cli.status import look

    workers = [one for one in look(redis_url).workers if one.host == node]
    if not workers:
        raise click.ClickException(f"no worker advertises itself from the node {node}.")
    for one in workers:
        if one.status == "failing":
            raise click.ClickException(f"worker {one.id} is failing: {one.detail}")


def get(host: str, port: int, path: str, *, timeout: float) -> int:
    """The HTTP status of ``GET path`` from a server that listens on ``host``.

    Raises :class:`OSError` or :class:`http.client.HTTPException` when there is no answer.
    """
    connection = HTTPConnection(reachable(host), port, timeout=timeout)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


def reachable(host: str) -> str:
    """The address at which this machine reaches a server that listens on ``host``: a wildcard means loopback."""
    return {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
