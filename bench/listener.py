"""A subscriber that reads nothing of what it hears: what a replica or a worker is to the store, at next to no cost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def deaf(port: int, *channels: str) -> AsyncIterator[None]:
    """Hear what is published on ``channels`` of the store on ``port``, and throw it away, within the block."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"SUBSCRIBE %s\r\n" % " ".join(channels).encode())
    await reader.readline()

    async def discard() -> None:
        while await reader.read(2**18):
            pass

    discarding = asyncio.create_task(discard())
    try:
        yield
    finally:
        discarding.cancel()
        writer.close()
