"""Services: order, refusals, tenants, and what happens when the subprocess hangs, crashes or can't be loaded."""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.protocol.errors import Problem, ProblemKind, RequestRefused
from tests.integration.faulty_service import MODULE, FaultyOptions
from tests.support.eventually import PATIENCE, eventually
from worker.processes.call_process import ServiceSpec, ServiceUnavailable
from worker.processes.child import CpuTime
from worker.processes.service import Service

DEADLINE = 1.0
SLOW = Problem(kind=ProblemKind.TEMPLATE, message="It is slow.")
CRASHED = Problem(kind=ProblemKind.POISON, message="It crashes.")

Faulty = Service[str, str]


def service(path: Path, *, essential: bool) -> Faulty:
    spec = ServiceSpec(
        module=MODULE,
        options=FaultyOptions(str(path)),
        reply=str,
        name="test process",
        deadline=DEADLINE,
        on_timeout=lambda seconds: SLOW,
        on_crash=CRASHED,
    )
    return Service(spec, essential=essential)


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
        await faulty.call(call, "a")
    return refusal.value.problem


async def test_each_call_gets_its_own_reply(faulty: Faulty) -> None:
    calls = [f"call {number}" for number in range(20)]
    assert await asyncio.gather(*(faulty.call(call, "a") for call in calls)) == calls


async def test_a_refusal_and_an_unexpected_error_affect_only_their_call(faulty: Faulty) -> None:
    await faulty.ready()
    before = faulty.pid
    refused, failed, served = faulty.call("refuse", "a"), faulty.call("fail", "a"), faulty.call("x", "a")
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
    hanging, second, third = faulty.call("hang", "a"), faulty.call("x", "a"), faulty.call("y", "a")
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

    monkeypatch.setattr("worker.processes.call_process.CpuTime", CpuTimeOfAStarvedProcess)
    assert await _refusal(faulty, "hang") is SLOW
    assert sum(starved) >= 3 * DEADLINE


async def test_a_short_call_is_served_without_a_look_at_the_cpu_time(
    faulty: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.processes.call_process._DEADLINE_CHECKS", 1e-6)
    monkeypatch.setattr("worker.processes.call_process.CpuTime", None)
    assert await faulty.call("x", "a") == "x"


async def test_a_call_during_a_crash_is_tried_once_more(faulty: Faulty) -> None:
    first, second = faulty.call("crash once", "a"), faulty.call("x", "a")
    assert (await first, await second) == ("crash once", "x")


async def test_a_call_that_crashes_twice_is_refused_and_those_behind_it_are_served(faulty: Faulty) -> None:
    crashing, behind = faulty.call("crash", "a"), faulty.call("x", "a")
    assert await behind == "x"
    with pytest.raises(RequestRefused) as refusal:
        await crashing
    assert refusal.value.problem is CRASHED


async def test_a_process_that_dies_idle_is_replaced_and_blames_nobody(faulty: Faulty) -> None:
    await faulty.ready()
    dead = faulty.pid
    assert dead is not None
    os.kill(dead, signal.SIGKILL)
    assert await faulty.call("x", "a") == "x"
    assert faulty.pid != dead


async def test_a_caller_that_gives_up_neither_delays_nor_mixes_up_the_others(faulty: Faulty) -> None:
    await faulty.ready()
    hanging, withdrawn = faulty.call("hang", "a"), faulty.call("crash", "a")
    hanging.cancel()
    withdrawn.cancel()
    assert await faulty.call("x", "a") == "x"


async def test_a_stop_fails_pending_calls_and_ends_the_process(faulty: Faulty) -> None:
    await faulty.ready()
    pid = faulty.pid
    assert pid is not None
    pending = [faulty.call("hang", "a"), faulty.call("x", "a")]
    await faulty.stop()
    results = await asyncio.gather(*pending, return_exceptions=True)
    assert [type(result) for result in results] == [ServiceUnavailable, ServiceUnavailable]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(ServiceUnavailable):
        await faulty.call("late", "a")


@pytest.mark.parametrize("milliseconds", [0, 1, 3, 9])
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
    assert await faulty.call("crash once", "a")
    assert (tmp_path / "interruptions").read_text() == "0"


async def test_too_many_replacements_that_die_while_they_load_are_an_error(
    tmp_path: Path, faulty: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.processes.call_process._MAX_INTERRUPTED_LOADS", 2)
    (tmp_path / "interruptions").write_text("100")
    await faulty.ready()
    with pytest.raises(ServiceUnavailable, match="the test process ended with exit code 3 while it loaded"):
        await faulty.call("crash once", "a")
    with pytest.raises(ServiceUnavailable, match="while it loaded"):
        await faulty.ended()


async def test_an_essential_service_that_can_not_be_loaded_is_unavailable(tmp_path: Path) -> None:
    faulty = service(tmp_path / "missing", essential=True)
    faulty.start()
    with pytest.raises(ServiceUnavailable, match="no such folder"):
        await faulty.ready()
    with pytest.raises(ServiceUnavailable):
        await faulty.call("x", "a")
    await faulty.stop()


async def test_any_other_service_is_started_by_a_call_until_it_loads(
    tmp_path: Path, optional: Faulty, caplog: pytest.LogCaptureFixture
) -> None:
    assert optional.pid is None
    with caplog.at_level(logging.WARNING, logger="worker.processes.call_process"):
        problem = await _refusal(optional, "x")
    assert (problem.kind, problem.message) == (ProblemKind.INTERNAL, "A part of the worker failed: no such folder.")
    assert caplog.messages == ["the test process is unavailable: no such folder"]
    (tmp_path / "late").mkdir()
    assert await optional.call("x", "a") == "x"


async def _completed(**replies: asyncio.Future[str]) -> list[str]:
    """Wait for ``replies``; return their names in the order in which they came."""
    names: list[str] = []
    for name, reply in replies.items():
        reply.add_done_callback(lambda reply, name=name: names.append(name))  # type: ignore[misc]
    await asyncio.wait(replies.values())
    return names


async def test_calls_of_tenants_alternate(faulty: Faulty) -> None:
    a = {f"a{number}": faulty.call("spend", "a") for number in range(3)}
    b = {f"b{number}": faulty.call("spend", "b") for number in range(3)}
    assert [name[1] for name in await _completed(**a, **b)] == ["0", "0", "1", "1", "2", "2"]


async def test_the_next_call_of_a_tenant_does_not_wait_for_a_turn_of_others(faulty: Faulty) -> None:
    """A caller that makes one call after the other is served as if it had made them at once."""
    order: list[str] = []

    async def two_calls() -> None:
        await faulty.call("x", "b")
        await faulty.call("y", "b")
        order.append("b")

    both = asyncio.create_task(two_calls())
    await asyncio.sleep(0)
    a = [faulty.call("spend", "a") for _ in range(2)]
    a[1].add_done_callback(lambda reply: order.append("a"))
    await asyncio.gather(both, *a)
    assert order == ["b", "a"]


async def test_a_tenant_whose_call_hung_is_isolated(faulty: Faulty) -> None:
    await faulty.ready()
    first, second = faulty.call("hang", "a"), faulty.call("hang", "a")
    b = faulty.call("x", "b")
    assert await _completed(first=first, b=b, second=second) == ["first", "b", "second"]
    pid = faulty.pid
    hanging = faulty.call("hang", "a")
    assert await faulty.call("y", "b") == "y"
    assert not hanging.done()
    assert await _refusal(faulty, "hang") is SLOW
    assert (await faulty.call("z", "a"), faulty.pid) == ("z", pid)


async def test_the_isolation_ends_and_with_it_the_second_process(
    faulty: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.processes.service._ISOLATION", 0.2)
    await _refusal(faulty, "hang")
    isolated = faulty.call("x", "a")  # served by either process
    assert faulty._second.running
    assert await isolated == "x"
    await eventually(lambda: not faulty._second.running, "the end of the second process")
    assert await faulty.call("y", "a") == "y"
    pid = faulty.pid
    await _refusal(faulty, "hang")  # in the first process again
    await faulty.ready()
    await faulty.call("z", "b")
    assert faulty.pid != pid


async def test_requests_without_a_key_are_not_isolated(faulty: Faulty) -> None:
    with pytest.raises(RequestRefused):
        await faulty.call("hang", "")
    await faulty.call("x", "")
    pid = faulty.pid
    with pytest.raises(RequestRefused):
        await faulty.call("hang", "")
    await faulty.call("x", "")
    assert faulty.pid != pid


async def test_a_tenant_that_has_used_up_its_share_is_refused_with_a_time(
    faulty: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.processes.fair_queue.BURST", 0.01)
    await faulty.call("spend", "a")
    assert await faulty.call("x", "a") == "x"  # nobody else waits
    served, waiting = faulty.call("spend", "c"), faulty.call("x", "b")
    problem = await _refusal(faulty, "x")
    assert problem.kind is ProblemKind.RATE_LIMITED
    assert problem.retry_after is not None
    assert "share of the CPU time of the worker's test process" in problem.message
    assert (await served, await waiting) == ("spend", "x")
