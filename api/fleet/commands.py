"""Commands of operators to workers, written to the audit log."""

import asyncio
from collections.abc import Callable
from typing import Literal

from redis.asyncio import Redis

from api.keys.audit import log_change
from shared.protocol.registry import WorkerInfo, registered
from shared.redis import keys
from shared.redis.client import database_of

_POLL = 0.2
_CONFIRMATION = 10.0
"""Seconds within which a worker confirms a command in its registry record."""


class UnknownWorker(Exception):
    """No worker with this id is registered. The message names those that are."""


class CommandIgnored(Exception):
    """The worker has not obeyed a command. The message says why."""


async def command_worker(redis: Redis, worker: str, command: Literal["drain", "resume"], *, by: str) -> WorkerInfo:
    """Have ``worker`` claim no more requests, or claim them again, and log that ``by`` asked (:mod:`api.keys.audit`).

    Returns its record once it obeys. Raises :class:`UnknownWorker`, :class:`CommandIgnored`, and what redis-py raises.
    """
    await find_worker(redis, worker)
    await log_change(redis, by, f"worker.{command}", worker)
    if not await redis.publish(keys.worker_channel(worker, database_of(redis)), command):
        raise CommandIgnored(f"{worker} does not listen: it still looks for its model, or is stopping.")
    try:
        async with asyncio.timeout(_CONFIRMATION):
            return await await_worker(redis, worker, lambda info: (info.status == "draining") == (command == "drain"))
    except TimeoutError:
        raise CommandIgnored(
            f"{worker} has not obeyed within {_CONFIRMATION:.0f} s: it is stopping, or of an older version."
        ) from None


async def await_worker(redis: Redis, worker: str, done: Callable[[WorkerInfo], bool]) -> WorkerInfo:
    """Return the record of ``worker`` once it is ``done``. Raises :class:`UnknownWorker` if the worker ends."""
    while True:
        info = await find_worker(redis, worker)
        if done(info):
            return info
        await asyncio.sleep(_POLL)


async def find_worker(redis: Redis, worker: str) -> WorkerInfo:
    """Return the record of ``worker``. Raises :class:`UnknownWorker`."""
    infos = await registered(redis, WorkerInfo)
    for info in infos:
        if info.id == worker:
            return info
    known = ", ".join(info.id for info in infos) or "none"
    raise UnknownWorker(f"There is no worker '{worker}'. Registered workers: {known}.")
