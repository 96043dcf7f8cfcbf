"""When batch requests are taken out of the engine for other requests, and when they are resumed."""

import asyncio
import itertools
from typing import Any, cast

import msgspec
import pytest

from shared.protocol.request import Sampling, Tier
from tests.support.eventually import eventually
from tests.support.job_rig import Hold, attempt_of
from tests.support.jobs import job
from worker.engine.handle import EngineProcess
from worker.jobs.gates import batches
from worker.jobs.gates.batches import MIN_RUN, BatchGate

DEFAULTS = Sampling()


class Engine:
    """An engine process that records its commands."""

    def __init__(self) -> None:
        self.commands: list[tuple[int, ...]] = []

    def preempt(self, numbers: Any) -> None:
        self.commands.append(tuple(numbers))


class Rig:
    """A batch gate with a clock that the test advances, and an engine."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.now = 1000.0
        self.gate = BatchGate(clock=lambda: self.now)
        self._numbers = itertools.count(1)

    async def enter(self, tier: Tier | None = None, sampling: Sampling = DEFAULTS, *, crashes: int = 0) -> Hold:
        number = next(self._numbers)
        entering = job(str(number))
        request = msgspec.structs.replace(entering.request, tier=tier, sampling=sampling)
        attempt = attempt_of(msgspec.structs.replace(entering, request=request), number, crashes=crashes)
        attempt.sequence = msgspec.structs.replace(attempt.sequence, sampling=sampling)
        attempt.engine = cast(EngineProcess, self.engine)
        return await self.gate.enter(attempt)

    async def preempt_once(self, seconds: float) -> None:
        other = await self.enter()
        self.now += seconds
        other.leave()
        self.engine.commands.clear()


@pytest.fixture
def rig() -> Rig:
    return Rig()


async def test_batch_requests_are_preempted_until_each_arrival_has_its_first_token(rig: Rig) -> None:
    await rig.enter("batch")
    await rig.enter("batch")
    first = await rig.enter()
    assert rig.engine.commands == [(1, 2)]
    second = await rig.enter()
    first.progress(1)
    first.leave()
    assert rig.engine.commands == [(1, 2)]
    second.leave()
    assert rig.engine.commands == [(1, 2), ()]


async def test_suspects_and_texts_that_a_seed_reproduces_are_not_preempted(rig: Rig) -> None:
    await rig.enter("batch", crashes=1)
    await rig.enter("batch", Sampling(seed=7))
    await rig.enter("batch", Sampling(seed=7, temperature=0))
    await rig.enter()
    assert rig.engine.commands == [(3,)]


@pytest.mark.parametrize("seconds", [MIN_RUN / 2, 3 * MIN_RUN])
async def test_batch_requests_run_as_long_as_they_were_preempted(rig: Rig, seconds: float) -> None:
    await rig.enter("batch")
    await rig.preempt_once(seconds)
    rig.now += max(MIN_RUN, seconds) - 0.01
    (await rig.enter()).leave()
    assert rig.engine.commands == []
    late = await rig.enter()
    assert rig.engine.commands == []
    rig.now += 0.02
    await eventually(lambda: rig.engine.commands == [(1,)])
    late.leave()
    assert rig.engine.commands == [(1,), ()]


async def test_a_preemption_ends_in_time_and_is_repeated(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "MAX_DURATION", 0.01)
    monkeypatch.setattr(batches, "MIN_RUN", 0.01)
    await rig.enter("batch")
    other = await rig.enter()
    await eventually(lambda: rig.engine.commands == [(1,), ()])
    rig.now += batches.MIN_RUN
    await eventually(lambda: rig.engine.commands == [(1,), (), (1,), ()])
    other.leave()
    assert len(rig.engine.commands) == 4


async def test_a_batch_request_that_has_been_claimed_waits(rig: Rig) -> None:
    other = await rig.enter()
    waiting = asyncio.create_task(rig.enter("batch"))
    await asyncio.sleep(0)
    assert not waiting.done()
    other.leave()
    await waiting
    assert rig.engine.commands == [], "there was none in the engine"


async def test_without_batch_requests_the_next_batch_is_protected_at_once(rig: Rig) -> None:
    await rig.preempt_once(5.0)
    await rig.enter("batch")
    await rig.enter()
    assert rig.engine.commands == [(2,)]
