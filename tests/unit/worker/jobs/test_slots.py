"""How many slots a worker keeps free of batch requests, and which requests leave their slots to others."""

import asyncio
import time
from typing import Any, Self

import msgspec
from arq.connections import ArqRedis

from shared.protocol.queue import Claim, JobQueue
from shared.protocol.request import ChatRequest, Embed, Job, Message, Tier
from tests.support.eventually import eventually
from tests.support.job_rig import ActiveJobs, consumer_of
from worker.engine.protocol import OutputGrammar


class Rig:
    """A consumer whose jobs run until they are told to end."""

    def __init__(self, redis: ArqRedis, slots: int = 4, queries: int = 0) -> None:
        self.queue = JobQueue(redis, "tiny", lease_ms=60_000)
        self.running: dict[str, asyncio.Event] = {}
        self.jobs = ActiveJobs()
        self.consumer = consumer_of(
            self.queue, self._serve, slots=slots, jobs=self.jobs, poll=0.05, batch_reserve=None, query_reserve=queries
        )

    async def __aenter__(self) -> Self:
        self._consuming = asyncio.create_task(self.consumer.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._consuming.cancel()
        await self.consumer.stop()
        await asyncio.gather(self._consuming, return_exceptions=True)

    async def put(self, *names: str, tier: Tier | None = None, tenant: str = "", **fields: Any) -> None:
        for name in names:
            request = ChatRequest(model="tiny", messages=(Message(role="user", content="a"),), tier=tier, **fields)
            await self.queue.enqueue([Job(id=name, reply_to="r", request=request, tenant=tenant)], limit=100)
        self.consumer.wake()

    async def _serve(self, claim: Claim, job: Job) -> None:
        self.running[job.id] = asyncio.Event()
        try:
            await self.running[job.id].wait()
            await self.queue.redis.delete(f"arq:job:{job.id}")
        finally:
            del self.running[job.id]

    def have_output(self) -> None:
        """The running jobs have had output for a long time."""
        for attempt in self.jobs.by_number.values():
            attempt.first_output_at = time.monotonic() - 60


async def test_batch_requests_leave_slots_free(redis: ArqRedis) -> None:
    async with Rig(redis) as rig:
        await rig.put(*"abcdef", tier="batch")
        await eventually(lambda: sorted(rig.running) == ["a", "b", "c"])
        await rig.put("x")
        await eventually(lambda: "x" in rig.running)
        rig.running["a"].set()
        rig.running["b"].set()
        rig.running["x"].set()
        await eventually(lambda: sorted(rig.running) == ["c", "d", "e"])


async def test_texts_to_index_leave_slots_free_for_queries(redis: ArqRedis) -> None:
    async with Rig(redis, queries=1) as rig:
        await rig.put(*"abcdef", work=Embed(), prompts=("a" * 4000,))
        await eventually(lambda: sorted(rig.running) == ["a", "b", "c"])
        await rig.put("q", work=Embed(), prompts=("a",))
        await eventually(lambda: sorted(rig.running) == ["a", "b", "c", "q"])
        rig.running["a"].set()
        await eventually(lambda: sorted(rig.running) == ["b", "c", "d", "q"])


async def test_a_batch_request_leaves_the_only_slot_to_other_requests_and_returns(redis: ArqRedis) -> None:
    async with Rig(redis, slots=1) as rig:
        await rig.put("a", "b", tier="batch")
        await eventually(lambda: [*rig.running] == ["a"])
        await rig.put("x")
        await asyncio.sleep(0.2)
        assert [*rig.running] == ["a"]  # nothing of it would be left for the next attempt
        rig.have_output()
        await eventually(lambda: [*rig.running] == ["x"])
        rig.have_output()
        await rig.put("y")
        rig.running["x"].set()
        await eventually(lambda: [*rig.running] == ["y"])
        rig.running["y"].set()
        await eventually(lambda: [*rig.running] == ["a"])
        (attempt,) = rig.jobs.by_number.values()
        assert (attempt.lease.attempt, attempt.claim.cause) == (2, "preempted")


async def test_the_newest_request_of_a_tenant_leaves_its_slot_to_another_tenant(redis: ArqRedis) -> None:
    async with Rig(redis) as rig:
        await rig.put(*"abcd", tenant="greedy")
        await eventually(lambda: len(rig.running) == 4)
        await rig.put("x", tenant="other")
        await rig.consumer.yield_slot()
        assert "x" not in rig.running, "nothing of theirs would be left for the next attempt"
        rig.have_output()
        for attempt in rig.jobs.by_number.values():
            if attempt.lease.job == "d":  # it can't be resumed exactly
                attempt.sequence = msgspec.structs.replace(attempt.sequence, grammar=OutputGrammar("a"))
        await rig.consumer.yield_slot()
        await eventually(lambda: sorted(rig.running) == ["a", "b", "d", "x"])
        rig.running["x"].set()
        await eventually(lambda: sorted(rig.running) == ["a", "b", "c", "d"])
        await redis.delete("vinoqueue:fair-queue:tiny")  # a second has passed
        await rig.put("y", tenant="other")
        for attempt in rig.jobs.by_number.values():
            attempt.first_output_at = time.monotonic() - 5
        await rig.consumer.yield_slot()
        await eventually(lambda: sorted(rig.running) == ["a", "c", "d", "y"])
