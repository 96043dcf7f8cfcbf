"""Publishes events as workers do, without a worker's raw connection."""

from collections.abc import Collection, Mapping, Sequence

from redis.asyncio import Redis

from shared.protocol.events import Event, decode_journal
from shared.protocol.queue import Emitter, JobQueue, Lease, StaleClaims
from shared.protocol.queue.texts import queue_keys, script_text
from shared.redis import keys
from tests.support.redis_types import awaitable


async def emit(
    redis: Redis,
    emitter: Emitter,
    events: Mapping[Lease, Sequence[bytes]],
    *,
    ended: Collection[Lease] = (),
    load: float | None = None,
) -> dict[str, int]:
    """Publish ``events`` by :meth:`Emitter.command`; return the number of receivers of each replica's frame.

    Is repeated if the store must check all leases. Raises what :meth:`Emitter.parse_reply` raises.
    """
    command, replicas = emitter.command(events, ended=ended, load=load)
    _, _, names, *arguments = command
    answer = await redis.register_script(emitter.text)([*map(str, arguments[: int(names)])], arguments[int(names) :])
    try:
        return dict(zip(replicas, emitter.parse_reply(answer), strict=True))
    except StaleClaims as stale:
        if stale.claims:
            raise
    return await emit(redis, emitter, events, ended=ended, load=load)


async def journal_of(queue: JobQueue, job: str) -> list[Event]:
    """Return the published events of ``job`` in order; empty when it is unknown or its journal has expired."""
    await queue.redis.register_script(script_text("journals", 0))([*queue_keys(queue.model)], [job])
    return decode_journal(await awaitable(queue.redis.lrange(keys.journal(job), 0, -1)))
