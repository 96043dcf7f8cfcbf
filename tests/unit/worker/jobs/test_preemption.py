"""When lines of batches are taken out of the engine for other requests, and when they are resumed."""

import asyncio
import itertools
from typing import Any, cast

import pytest

from shared.protocol.queue import Lease
from shared.protocol.request import ChatRequest, Job, Message
from tests.support.eventually import eventually
from worker.engine.handle import EngineProcess
from worker.jobs import preemption
from worker.jobs.active_jobs import ActiveJob, ActiveJobs
from worker.jobs.preemption import MIN_RUN, Preemption


class Engine:
    """An engine process that records its commands."""

    def __init__(self) -> None:
        self.commands: list[tuple[int, ...]] = []

    def preempt(self, numbers: Any) -> None:
        self.commands.append(tuple(numbers))


class Rig:
    """Jobs in an engine, and a clock that the test advances."""

    def __init__(self, *, until_end: bool = False) -> None:
        self.jobs = ActiveJobs()
        self.engine = Engine()
        self.now = 1000.0
        self.preemption = Preemption(self.jobs, until_end=until_end, clock=lambda: self.now)
        self._numbers = itertools.count(1)

    def job(self, *, preemptible: bool = False) -> ActiveJob:
        number = next(self._numbers)
        request = ChatRequest(model="tiny", messages=(Message(role="user", content="a"),))
        task = cast("asyncio.Task[None]", None)
        active = ActiveJob(Job(id=str(number), reply_to="r", request=request), Lease(str(number), 1, "r"), number, task)
        active.engine = cast(EngineProcess, self.engine)
        active.preemptible = preemptible
        self.jobs.by_number[number] = active
        return active

    def preempt_once(self, seconds: float) -> None:
        other = self.job()
        self.preemption.preempt_for(other)
        self.now += seconds
        self.preemption.release(other)
        self.engine.commands.clear()


@pytest.fixture
def rig() -> Rig:
    return Rig()


async def test_lines_are_preempted_until_each_arrival_has_its_first_token(rig: Rig) -> None:
    rig.job(preemptible=True)
    rig.job(preemptible=True)
    rig.job()
    first, second = rig.job(), rig.job()
    rig.preemption.preempt_for(first)
    assert rig.engine.commands == [(1, 2)]
    rig.preemption.preempt_for(second)
    rig.preemption.release(first)
    rig.preemption.release(first)
    assert rig.engine.commands == [(1, 2)]
    rig.preemption.release(second)
    assert rig.engine.commands == [(1, 2), ()]


async def test_with_a_pause_lines_are_preempted_until_the_end_of_the_others() -> None:
    for until_end, resumed in ((False, [(1,), ()]), (True, [(1,)])):
        rig = Rig(until_end=until_end)
        rig.job(preemptible=True)
        other = rig.job()
        rig.preemption.preempt_for(other)
        rig.preemption.on_first_token(other)
        assert rig.engine.commands == resumed
        rig.preemption.release(other)
        assert rig.engine.commands == [(1,), ()]


@pytest.mark.parametrize("seconds", [MIN_RUN / 2, 3 * MIN_RUN])
async def test_lines_run_as_long_as_they_were_preempted(rig: Rig, seconds: float) -> None:
    rig.job(preemptible=True)
    rig.preempt_once(seconds)
    rig.now += max(MIN_RUN, seconds) - 0.01
    early, late = rig.job(), rig.job()
    rig.preemption.preempt_for(early)
    rig.preemption.release(early)
    assert rig.engine.commands == []
    rig.preemption.preempt_for(late)
    assert rig.engine.commands == []
    rig.now += 0.02
    await eventually(lambda: rig.engine.commands == [(1,)])
    rig.preemption.release(late)
    assert rig.engine.commands == [(1,), ()]


async def test_a_preemption_ends_in_time_and_is_repeated(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preemption, "MAX_DURATION", 0.01)
    rig.job(preemptible=True)
    other = rig.job()
    rig.preemption.preempt_for(other)
    await eventually(lambda: rig.engine.commands == [(1,), ()])
    rig.now += MIN_RUN
    await eventually(lambda: rig.engine.commands == [(1,), (), (1,), ()])
    rig.preemption.release(other)
    assert len(rig.engine.commands) == 4


async def test_a_line_that_has_been_claimed_waits(rig: Rig) -> None:
    await rig.preemption.wait_until_resumed()
    other = rig.job()
    rig.preemption.preempt_for(other)
    waiting = asyncio.create_task(rig.preemption.wait_until_resumed())
    await asyncio.sleep(0)
    assert not waiting.done()
    rig.preemption.release(other)
    await waiting
    assert rig.engine.commands == [], "there was no line in the engine"


async def test_without_lines_the_next_batch_is_protected_at_once(rig: Rig) -> None:
    rig.preempt_once(5.0)
    rig.job(preemptible=True)
    rig.preemption.preempt_for(rig.job())
    assert rig.engine.commands == [(2,)]
