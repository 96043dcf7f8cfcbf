"""Whose fault an engine's death is."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack

import msgspec
import pytest

from tests.support.job_rig import ActiveJobs, Attempt, Hold, attempt_of, claim_of, read_payload
from tests.support.jobs import job
from worker.jobs.gates.quarantine import QUARANTINE_TOKENS, Quarantine


class Rig:
    """A worker's jobs, and its quarantine."""

    def __init__(self, stack: ExitStack) -> None:
        self.jobs = ActiveJobs()
        self.gate = Quarantine()
        self._stack = stack

    def attempt(self, name: str, *, crashes: int = 0, lost_workers: int = 0, generated: int = 0) -> Attempt:
        claim = claim_of(job(name), crashes=crashes, lost_workers=lost_workers)
        attempt = self._stack.enter_context(self.jobs.registered(claim, read_payload(claim)))
        attempt.sequence = msgspec.structs.replace(attempt.sequence, generated=(7,) * generated)
        return attempt

    async def run(self, attempt: Attempt) -> Hold:
        hold = await self.gate.enter(attempt)
        attempt.added_at = 1.0
        return hold


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    with ExitStack() as stack:
        yield Rig(stack)


async def test_without_a_suspect_everyone_in_the_engine_is_suspected(rig: Rig) -> None:
    for name in "ab":
        await rig.run(rig.attempt(name))
    rig.attempt("waits")
    assert rig.jobs.suspects() == {"a", "b"}


async def test_only_the_suspect_in_quarantine_is_to_blame_if_it_is_in_the_engine(rig: Rig) -> None:
    suspect = rig.attempt("a", crashes=1, generated=10)
    await rig.gate.enter(suspect)
    await rig.run(rig.attempt("b"))
    assert rig.jobs.suspects() == {"b"}
    suspect.added_at = 1.0
    assert rig.jobs.suspects() == {"a"}


async def test_suspects_take_turns(rig: Rig) -> None:
    first = await rig.run(rig.attempt("a", crashes=1, generated=10))
    second = asyncio.create_task(rig.run(rig.attempt("b", lost_workers=2)))
    await asyncio.sleep(0)
    assert first.progress(10 + QUARANTINE_TOKENS - 1)
    await asyncio.sleep(0)
    assert not second.done()
    assert not first.progress(10 + QUARANTINE_TOKENS)
    await second
    assert rig.jobs.suspects() == {"b"}
    first.leave()
    assert rig.jobs.suspects() == {"b"}
    (await second).leave()
    assert rig.jobs.suspects() == {"a", "b"}


def test_a_crash_makes_a_suspect_at_once_and_a_vanished_worker_does_not() -> None:
    assert attempt_of("a", crashes=1).is_suspect
    assert not attempt_of("a", lost_workers=1).is_suspect
    assert attempt_of("a", lost_workers=2).is_suspect
