"""Publishes events as workers do, without a worker's raw connection."""

from collections.abc import Container, Mapping, Sequence

import hiredis
from redis.asyncio import Redis

from shared.protocol.queue import Emitter, Lease


def unpack(command: bytes) -> list[bytes]:
    """Return the arguments of a packed command."""
    reader = hiredis.Reader()
    reader.feed(command)
    arguments: list[bytes] = reader.gets()
    return arguments


async def emit(
    redis: Redis,
    emitter: Emitter,
    events: Mapping[Lease, Sequence[bytes]],
    *,
    ended: Container[Lease] = (),
    load: float | None = None,
) -> dict[str, int]:
    """Publish ``events`` by :meth:`Emitter.command`; return the number of receivers of each replica's frame.

    Raises what :meth:`Emitter.parse_reply` raises.
    """
    command, replicas = emitter.command(events, ended=ended, load=load)
    _, _, names, *arguments = unpack(command)
    answer = await redis.register_script(emitter.text)(arguments[: int(names)], arguments[int(names) :])
    return dict(zip(replicas, emitter.parse_reply(answer), strict=True))
