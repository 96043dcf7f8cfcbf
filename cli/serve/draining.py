"""Takes workers out of service, and returns them."""

from collections.abc import Awaitable, Callable

import click
from arq.connections import ArqRedis

from api.fleet.commands import CommandIgnored, UnknownWorker, await_worker, command_worker
from cli.base.output import echo
from cli.base.store_reader import actor, read_store
from shared.runtime.logs import escaped


def drain_worker(redis_url: str, worker: str) -> None:
    """Take ``worker`` out of service and wait until it has no requests. Raises :class:`click.ClickException`."""

    async def run(redis: ArqRedis) -> None:
        info = await command_worker(redis, worker, "drain", by=actor())
        echo(escaped(f"{worker} drains: it has {info.used} requests."))
        await await_worker(redis, worker, lambda info: info.used == 0)
        echo(escaped(f"{worker} has no requests any more. To use it again: vinoqueue worker resume {worker}"))

    _command(redis_url, run)


def resume_worker(redis_url: str, worker: str) -> None:
    """Return ``worker`` to service. Raises :class:`click.ClickException`."""

    async def run(redis: ArqRedis) -> None:
        info = await command_worker(redis, worker, "resume", by=actor())
        echo(escaped(f"{worker} is {info.status}."))

    _command(redis_url, run)


def _command(redis_url: str, run: Callable[[ArqRedis], Awaitable[None]]) -> None:
    try:
        read_store(redis_url, run)
    except (UnknownWorker, CommandIgnored) as error:
        raise click.ClickException(escaped(str(error))) from None
