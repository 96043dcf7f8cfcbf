"""A subscriber that discards all messages: to the store it looks like a replica or a worker, at almost no cost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def deaf(port: int, *channels: str) -> AsyncIterator[None]:
    """Subscribe to ``channels`` of the store on ``port`` and discard the messages, within the block."""
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
