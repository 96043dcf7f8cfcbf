"""``vinoqueue worker drain`` and ``resume``: take a worker out of service without ending it, and return it."""

from collections.abc import Awaitable, Callable

import click
from arq.connections import ArqRedis

from api.fleet.commands import CommandIgnored, UnknownWorker, await_worker, command_worker
from cli.base.instances import store_option
from cli.base.store_reader import actor, read_store
from shared.runtime.logs import escaped


@click.command(params=[store_option()])
@click.argument("worker", metavar="ID")
def drain(redis_url: str, worker: str) -> None:
    """Take worker ID out of service, and wait until it has no request any more.

    It claims no more requests. Those that it runs have the worker's --drain seconds to finish; then other workers
    continue them. The worker keeps its model loaded until 'resume', or until it restarts.
    """

    async def run(redis: ArqRedis) -> None:
        info = await command_worker(redis, worker, "drain", by=actor())
        click.echo(escaped(f"{worker} drains: it has {info.used} requests."))
        await await_worker(redis, worker, lambda info: info.used == 0)
        click.echo(escaped(f"{worker} has no requests any more. To use it again: vinoqueue worker resume {worker}"))

    _command(redis_url, run)


@click.command(params=[store_option()])
@click.argument("worker", metavar="ID")
def resume(redis_url: str, worker: str) -> None:
    """Return worker ID to service after 'drain'."""

    async def run(redis: ArqRedis) -> None:
        info = await command_worker(redis, worker, "resume", by=actor())
        click.echo(escaped(f"{worker} is {info.status}."))

    _command(redis_url, run)


def _command(redis_url: str, run: Callable[[ArqRedis], Awaitable[None]]) -> None:
    try:
        read_store(redis_url, run)
    except (UnknownWorker, CommandIgnored) as error:
        raise click.ClickException(escaped(str(error))) from None
