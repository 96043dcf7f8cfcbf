"""Publishing as workers do, for those who have no line of their own."""

from collections.abc import Container, Mapping, Sequence

from redis.asyncio import Redis

from shared.line import unpack
from shared.queue import Emitter, Holding
from shared.scripts import Script


async def emit(
    redis: Redis,
    emitter: Emitter,
    said: Mapping[Holding, Sequence[bytes]],
    *,
    ended: Container[Holding] = (),
    load: float | None = None,
) -> dict[str, int]:
    """Publish as :meth:`Emitter.command` says; return the number of receivers of each replica's frame, or raise, as
    :meth:`Emitter.receipt` does."""
    command, replicas = emitter.command(said, ended=ended, load=load)
    _, _, names, *arguments = unpack(command)
    answer = await Script(redis, emitter.text)(arguments[: int(names)], arguments[int(names) :])
    return dict(zip(replicas, emitter.receipt(answer), strict=True))
