"""An engine process's reports as an asynchronous iterator."""

import asyncio
from collections.abc import AsyncIterator

from worker.engine.interface import RawStep, Refused
from worker.engine.process import EngineProcess


async def reports_of(engine: EngineProcess) -> AsyncIterator[RawStep | Refused]:
    """Yield what ``engine`` says after it is ready, until its process ends."""
    heard: asyncio.Queue[RawStep | Refused | None] = asyncio.Queue()

    async def listen() -> None:
        try:
            await engine.run(heard.put_nowait, heard.put_nowait)
        finally:
            heard.put_nowait(None)

    listening = asyncio.create_task(listen())
    try:
        while (report := await heard.get()) is not None:
            yield report
        await listening
    finally:
        listening.cancel()
