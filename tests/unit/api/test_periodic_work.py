"""What an API replica does again and again, with the time to the next beat in the tests' hands."""

import asyncio
import time

import pytest
import uvicorn
from arq.connections import ArqRedis

import api.chat.queues
import api.main
from api.chat.queues import JobQueues
from api.http.connection_limits import ConnectionLimits
from api.main import _Server
from api.models.directory import Directory
from shared.protocol.queue import JobQueue
from shared.protocol.registry import announce
from tests.support.eventually import PATIENCE, eventually
from tests.support.jobs import WORKER, enqueue

LEASE = 0.3
NEVER = 1000.0


async def test_a_lease_that_is_not_renewed_is_missed_at_its_end(
    redis: ArqRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = Directory(redis)
    queues = JobQueues(redis, prefix_routing=True, lease=LEASE)
    await announce(redis, WORKER, lease=60)
    await directory.refresh()
    queue = JobQueue(redis, WORKER.model, lease_ms=int(LEASE * 1000))
    await enqueue(queue, "a")
    await queue.claim("gone", used=0, slots=1)
    # Only the first beat comes, and the lease still holds then. (For want of others, the store seems to have been away
    # when it ends, and it holds once more.)
    beats = iter([0.0])
    monkeypatch.setattr(api.chat.queues, "next_tick", lambda period: next(beats, NEVER))
    reaping = asyncio.create_task(queues.reap(directory))

    async def is_back() -> bool:
        return await queue.depth() == (1, 0)

    await eventually(is_back)
    reaping.cancel()


async def test_the_date_is_kept_until_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def app(scope: object, receive: object, send: object) -> None: ...

    config = uvicorn.Config(app, lifespan="off", log_config=None)
    config.load()
    server = _Server(config, ConnectionLimits(10, 0))
    asked: list[float] = []

    def next_tick(period: float) -> float:
        asked.append(period)
        return 0.001 if len(asked) < 3 else NEVER

    monkeypatch.setattr(api.main, "next_tick", next_tick)
    moments = iter([0.0, 0.0, 3600.0, 3600.0])
    monkeypatch.setattr(time, "time", lambda: next(moments, 3600.0))
    serving = asyncio.create_task(server.main_loop())
    await eventually(lambda: len(asked) >= 3)
    async with asyncio.timeout(PATIENCE):
        assert dict(server.server_state.default_headers)[b"date"] == b"Thu, 01 Jan 1970 01:00:00 GMT"
        server.end()
        await serving
