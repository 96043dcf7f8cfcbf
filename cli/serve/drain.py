"""``vinoqueue worker drain`` and ``resume``: take a worker out of service without ending it, and return it."""

import asyncio
from collections.abc import Callable

import click
from arq.connections import ArqRedis

from api.base.audit import log_change
from cli.base.instances import store_option
from cli.base.store_reader import actor, read_store
from shared.protocol.registry import WorkerInfo, registered_workers
from shared.redis import keys
from shared.runtime.logs import escaped

_POLL = 0.2
_CONFIRMATION = 10.0
"""Seconds within which a worker confirms a command in its registry record."""


@click.command(params=[store_option()])
@click.argument("worker", metavar="ID")
def drain(redis_url: str, worker: str) -> None:
    """Take worker ID out of service, and wait until it has no request any more.

    It claims no more requests. Those that it runs have the worker's --drain seconds to finish; then other workers
    continue them. The worker keeps its model loaded until 'resume', or until it restarts.
    """

    async def run(redis: ArqRedis) -> None:
        info = await _command(redis, worker, "drain", lambda info: info.status == "draining")
        click.echo(escaped(f"{worker} drains: it has {info.used} requests."))
        await _until(redis, worker, lambda info: info.used == 0)
        click.echo(escaped(f"{worker} has no requests any more. To use it again: vinoqueue worker resume {worker}"))

    read_store(redis_url, run)


@click.command(params=[store_option()])
@click.argument("worker", metavar="ID")
def resume(redis_url: str, worker: str) -> None:
    """Return worker ID to service after 'drain'."""

    async def run(redis: ArqRedis) -> None:
        info = await _command(redis, worker, "resume", lambda info: info.status != "draining")
        click.echo(escaped(f"{worker} is {info.status}."))

    read_store(redis_url, run)


async def _command(redis: ArqRedis, worker: str, word: str, done: Callable[[WorkerInfo], bool]) -> WorkerInfo:
    """Send ``word`` to ``worker`` and return its record once it is ``done``. Raises :class:`click.ClickException`."""
    await _record(redis, worker)
    await log_change(redis, actor(), f"worker.{word}", worker)  # type: ignore[misc]
    if not await redis.publish(keys.worker_channel(worker), word):
        raise click.ClickException(escaped(f"{worker} does not listen: it still looks for its model, or is stopping."))
    try:
        async with asyncio.timeout(_CONFIRMATION):
            return await _until(redis, worker, done)
    except TimeoutError:
        raise click.ClickException(
            escaped(f"{worker} has not obeyed within {_CONFIRMATION:.0f} s: it is stopping, or of an older version.")
        ) from None


async def _until(redis: ArqRedis, worker: str, done: Callable[[WorkerInfo], bool]) -> WorkerInfo:
    """Return the record of ``worker`` once it is ``done``. Raises :class:`click.ClickException` if the worker ends."""
    while True:
        info = await _record(redis, worker)
        if done(info):
            return info
        await asyncio.sleep(_POLL)


async def _record(redis: ArqRedis, worker: str) -> WorkerInfo:
    """Return the record of ``worker``. Raises :class:`click.ClickException` if there is none."""
    infos = await registered_workers(redis)
    for info in infos:
        if info.id == worker:
            return info
    known = ", ".join(info.id for info in infos) or "none"
    raise click.ClickException(escaped(f"There is no worker '{worker}'. Registered workers: {known}."))
