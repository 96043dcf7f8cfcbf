"""Services: order, refusals, and what happens when the subprocess hangs, crashes or can't be loaded."""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.protocol.errors import Problem, ProblemKind, RequestRefused
from tests.integration.faulty_service import MODULE, FaultyOptions
from tests.support.eventually import PATIENCE
from worker.cpu_time import CpuTime
from worker.subprocess.service import Service, ServiceUnavailable

DEADLINE = 1.0
SLOW = Problem(kind=ProblemKind.TEMPLATE, message="It is slow.")
CRASHED = Problem(kind=ProblemKind.POISON, message="It crashes.")

Faulty = Service[str, str]


def service(path: Path, *, essential: bool) -> Faulty:
    return Service(
        MODULE,
        FaultyOptions(str(path)),
        str,
        name="test process",
        deadline=DEADLINE,
        on_timeout=SLOW,
        on_crash=CRASHED,
        essential=essential,
    )


@pytest.fixture
async def faulty(tmp_path: Path) -> AsyncIterator[Faulty]:
    faulty = service(tmp_path, essential=True)
    faulty.start()
    yield faulty
    await faulty.stop()


@pytest.fixture
async def optional(tmp_path: Path) -> AsyncIterator[Faulty]:
    optional = service(tmp_path / "late", essential=False)
    yield optional
    await optional.stop()


async def _refusal(faulty: Faulty, call: str) -> Problem:
    with pytest.raises(RequestRefused) as refusal:
        await faulty.call(call)
    return refusal.value.problem


async def test_each_call_gets_its_own_reply(faulty: Faulty) -> None:
    calls = [f"call {number}" for number in range(20)]
    assert await asyncio.gather(*map(faulty.call, calls)) == calls


async def test_a_refusal_and_an_unexpected_error_affect_only_their_call(faulty: Faulty) -> None:
    await faulty.ready()
    before = faulty.pid
    refused, failed, served = faulty.call("refuse"), faulty.call("fail"), faulty.call("x")
    with pytest.raises(RequestRefused, match="no rule"):
        await refused
    with pytest.raises(RequestRefused, match="ValueError") as error:
        await failed
    assert error.value.problem.kind is ProblemKind.INTERNAL
    assert await served == "x"
    assert faulty.pid == before


async def test_a_call_that_hangs_is_refused_and_those_behind_it_are_served(faulty: Faulty) -> None:
    await faulty.ready()
    before = faulty.pid
    hanging, second, third = faulty.call("hang"), faulty.call("x"), faulty.call("y")
    assert (await second, await third) == ("x", "y")
    with pytest.raises(RequestRefused) as refusal:
        await hanging
    assert refusal.value.problem is SLOW
    assert faulty.pid != before


async def test_the_time_for_which_the_process_waits_for_a_cpu_does_not_count(
    faulty: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    starved: list[float] = []

    class CpuTimeOfAStarvedProcess(CpuTime):
        def usable(self, elapsed: float) -> float:
            starved.append(elapsed)
            return 0.0 if sum(starved) < 3 * DEADLINE else elapsed

    monkeypatch.setattr("worker.subprocess.service.CpuTime", CpuTimeOfAStarvedProcess)
    assert await _refusal(faulty, "hang") is SLOW
    assert sum(starved) >= 3 * DEADLINE


async def test_a_call_during_a_crash_is_tried_once_more(faulty: Faulty) -> None:
    first, second = faulty.call("crash once"), faulty.call("x")
    assert (await first, await second) == ("crash once", "x")


async def test_a_call_that_crashes_twice_is_refused_and_those_behind_it_are_served(faulty: Faulty) -> None:
    crashing, behind = faulty.call("crash"), faulty.call("x")
    assert await behind == "x"
    with pytest.raises(RequestRefused) as refusal:
        await crashing
    assert refusal.value.problem is CRASHED


async def test_a_process_that_dies_idle_is_replaced_and_blames_nobody(faulty: Faulty) -> None:
    await faulty.ready()
    dead = faulty.pid
    assert dead is not None
    os.kill(dead, signal.SIGKILL)
    assert await faulty.call("x") == "x"
    assert faulty.pid != dead


async def test_a_caller_that_gives_up_neither_delays_nor_mixes_up_the_others(faulty: Faulty) -> None:
    await faulty.ready()
    hanging, withdrawn = faulty.call("hang"), faulty.call("crash")
    hanging.cancel()
    withdrawn.cancel()
    assert await faulty.call("x") == "x"


async def test_a_stop_fails_pending_calls_and_ends_the_process(faulty: Faulty) -> None:
    await faulty.ready()
    pid = faulty.pid
    assert pid is not None
    pending = [faulty.call("hang"), faulty.call("x")]
    await faulty.stop()
    results = await asyncio.gather(*pending, return_exceptions=True)
    assert [type(result) for result in results] == [ServiceUnavailable, ServiceUnavailable]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(ServiceUnavailable):
        await faulty.call("late")


@pytest.mark.parametrize("milliseconds", range(10))
async def test_a_stop_while_a_dead_process_is_replaced_ends_all(faulty: Faulty, milliseconds: int) -> None:
    await faulty.ready()
    assert faulty.pid is not None
    os.kill(faulty.pid, signal.SIGKILL)
    await asyncio.sleep(milliseconds / 1000)
    async with asyncio.timeout(PATIENCE):
        await faulty.stop()
    # The next process may not have been started yet.
    if (pid := faulty.pid) is not None:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_replacements_that_die_while_they_load_are_replaced(tmp_path: Path, faulty: Faulty) -> None:
    (tmp_path / "interruptions").write_text("2")
    await faulty.ready()
    assert await faulty.call("crash once")
    assert (tmp_path / "interruptions").read_text() == "0"


async def test_too_many_replacements_that_die_while_they_load_are_an_error(
    tmp_path: Path, faulty: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.subprocess.service._MAX_INTERRUPTED_LOADS", 2)
    (tmp_path / "interruptions").write_text("100")
    await faulty.ready()
    with pytest.raises(ServiceUnavailable, match="the test process ended with exit code 3 while it loaded"):
        await faulty.call("crash once")
    with pytest.raises(ServiceUnavailable, match="while it loaded"):
        await faulty.ended()


async def test_an_essential_service_that_can_not_be_loaded_is_unavailable(tmp_path: Path) -> None:
    faulty = service(tmp_path / "missing", essential=True)
    faulty.start()
    with pytest.raises(ServiceUnavailable, match="no such folder"):
        await faulty.ready()
    with pytest.raises(ServiceUnavailable):
        await faulty.call("x")
    await faulty.stop()


async def test_any_other_service_is_started_by_a_call_until_it_loads(
    tmp_path: Path, optional: Faulty, caplog: pytest.LogCaptureFixture
) -> None:
    assert optional.pid is None
    with caplog.at_level(logging.WARNING, logger="worker.subprocess.service"):
        problem = await _refusal(optional, "x")
    assert (problem.kind, problem.message) == (ProblemKind.INTERNAL, "A part of the worker failed: no such folder.")
    assert caplog.messages == ["the test process is unavailable: no such folder"]
    (tmp_path / "late").mkdir()
    assert await optional.call("x") == "x"
