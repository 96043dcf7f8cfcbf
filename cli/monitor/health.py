"""``vinoqueue health``: the health check of containers and service managers.

It checks the process on this host only. It runs every few seconds, so it imports as little as possible.
"""

from http.client import HTTPConnection, HTTPException

import click

from cli.base.instances import store_option
from cli.base.options import option
from shared.runtime.settings import ApiSettings, NodeSettings, WorkerSettings

TIMEOUT = 3.0
"""Seconds to wait for the API's response."""


@click.group()
def health() -> None:
    """Check the API, worker or node on this host; the exit code is 0 if it is healthy, else 1.

    \b
    vinoqueue health api
    vinoqueue health worker
    vinoqueue health node
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


@health.command("worker", params=[store_option(), option(WorkerSettings, "node")])
@click.option("--serving", is_flag=True, help="Fail while a worker loads or drains, too.")
def worker(redis_url: str, node: str, serving: bool) -> None:
    """Check that a worker of this node is registered and not failing."""
    from cli.base.store_reader import read_store
    from shared.protocol.registry import WorkerInfo, registered

    # Only what the store's user of workers may read (docs/security.md).
    records = read_store(redis_url, lambda redis: registered(redis, WorkerInfo))
    workers = [record for record in records if record.host == node]
    if not workers:
        raise click.ClickException(f"no worker advertises itself from the node {node}.")
    for record in workers:
        if record.status == "failing" or (serving and record.status != "serving"):
            raise click.ClickException(f"worker {record.id} is {record.status}: {record.detail}")


@health.command("node", params=[store_option(), option(NodeSettings, "node")])
def node_(redis_url: str, node: str) -> None:
    """Check that this node is registered. Whether it can load its models is in 'vinoqueue status'."""
    from cli.base.store_reader import read_store
    from shared.protocol.registry import NodeInfo, registered

    nodes = read_store(redis_url, lambda redis: registered(redis, NodeInfo))
    if not any(record.host == node for record in nodes):
        raise click.ClickException(f"no node advertises itself as {node}.")


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
