"""How many slots a worker keeps free of batch requests."""

import asyncio

import pytest
from arq.connections import ArqRedis

from shared.protocol.queue import Claim, JobQueue
from shared.protocol.request import ChatRequest, Job, Message, Tier
from tests.support.eventually import eventually
from tests.support.job_rig import consumer_of


class Rig:
    """A consumer of four slots whose jobs run until they are told to end."""

    def __init__(self, redis: ArqRedis, pause: float) -> None:
        self.queue = JobQueue(redis, "tiny", lease_ms=60_000)
        self.running: dict[str, asyncio.Event] = {}
        self.consumer = consumer_of(self.queue, self._serve, poll=0.05, batch_reserve=None, batch_pause=pause)

    async def put(self, *names: str, tier: Tier | None = None) -> None:
        for name in names:
            request = ChatRequest(model="tiny", messages=(Message(role="user", content="a"),), tier=tier)
            await self.queue.enqueue([Job(id=name, reply_to="r", request=request)], limit=100)
        self.consumer.wake()

    async def _serve(self, claim: Claim, job: Job) -> None:
        self.running[job.id] = asyncio.Event()
        await self.running[job.id].wait()
        await self.queue.redis.delete(f"arq:job:{job.id}")
        del self.running[job.id]


@pytest.mark.parametrize("pause", [0.0, 0.3])
async def test_batch_requests_leave_slots_free_and_pause_while_others_run(redis: ArqRedis, pause: float) -> None:
    rig = Rig(redis, pause)
    running = asyncio.create_task(rig.consumer.run())
    try:
        await rig.put(*"abcdef", tier="batch")
        await eventually(lambda: sorted(rig.running) == ["a", "b", "c"])
        await rig.put("x")
        await eventually(lambda: "x" in rig.running)
        rig.running["a"].set()
        rig.running["b"].set()
        if pause:
            await eventually(lambda: sorted(rig.running) == ["c", "x"])
            await asyncio.sleep(0.2)
            assert sorted(rig.running) == ["c", "x"]
        rig.running["x"].set()
        await eventually(lambda: sorted(rig.running) == ["c", "d", "e"])
    finally:
        running.cancel()
        await rig.consumer.stop()
        await asyncio.gather(running, return_exceptions=True)
