"""The grammar process from outside: verdicts, their memory, and what happens when a grammar hangs or kills it."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.protocol.errors import ProblemKind, RequestRefused
from shared.protocol.request import Constraint
from tests.support.eventually import PATIENCE
from worker.cpu_time import CpuTime
from worker.grammar.interface import GrammarOptions
from worker.grammar.process import GrammarProcess

FAULTY = "tests.integration.faulty_grammar_child"
DEADLINE = 1.0


@pytest.fixture
async def grammars(tmp_path: Path) -> AsyncIterator[GrammarProcess]:
    process = GrammarProcess(GrammarOptions(path=str(tmp_path)), max_seconds=0.25, deadline=DEADLINE, module=FAULTY)
    process.start()
    yield process
    await process.stop()


def _grammar(text: str) -> Constraint:
    return Constraint(kind="grammar", value=text)


async def _refusal(grammars: GrammarProcess, text: str) -> str:
    with pytest.raises(RequestRefused) as refusal:
        await grammars.check(_grammar(text), "response_format")
    assert refusal.value.problem.kind is ProblemKind.INVALID
    assert refusal.value.problem.param == "response_format"
    return refusal.value.problem.message


async def test_a_good_grammar_passes_and_a_faulty_one_is_refused_with_the_reason(grammars: GrammarProcess) -> None:
    await grammars.check(_grammar("good"), "response_format")
    assert "no rule 'root'" in await _refusal(grammars, "fault")


async def test_a_grammar_that_the_batch_would_wait_for_is_refused(grammars: GrammarProcess) -> None:
    message = await _refusal(grammars, "slow")
    assert "2.00 s" in message
    assert "0.25 s" in message


async def test_a_grammar_that_makes_each_token_expensive_is_refused(grammars: GrammarProcess) -> None:
    message = await _refusal(grammars, "costly")
    assert "31 times" in message
    assert "4 times is the limit" in message


async def test_each_grammar_is_compiled_once(grammars: GrammarProcess, tmp_path: Path) -> None:
    await asyncio.gather(*(grammars.check(_grammar("good"), "tools") for _ in range(5)))
    for _ in range(2):
        await _refusal(grammars, "fault")
    assert (tmp_path / "asked").read_text().split() == ["good", "fault"]


async def test_the_kind_is_part_of_what_is_remembered(grammars: GrammarProcess, tmp_path: Path) -> None:
    await grammars.check(_grammar("good"), "response_format")
    await grammars.check(Constraint(kind="structural_tag", value="good"), "response_format")
    assert (tmp_path / "asked").read_text().split() == ["good", "good"]


async def test_a_grammar_that_hangs_is_refused_for_good_and_the_next_one_is_served(grammars: GrammarProcess) -> None:
    await grammars.check(_grammar("good"), "response_format")
    before = grammars.pid
    hanging = asyncio.create_task(_refusal(grammars, "hang"))
    await asyncio.gather(hanging, grammars.check(_grammar("another"), "response_format"))
    assert "1 s" in hanging.result()
    assert grammars.pid != before
    assert "1 s" in await _refusal(grammars, "hang")


async def test_the_time_for_which_the_process_waits_for_a_cpu_does_not_count(
    grammars: GrammarProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    starved: list[float] = []

    class CpuTimeOfAStarvedProcess(CpuTime):
        def usable(self, elapsed: float) -> float:
            starved.append(elapsed)
            return 0.0 if sum(starved) < 3 * DEADLINE else elapsed

    monkeypatch.setattr("worker.subprocess.calls.CpuTime", CpuTimeOfAStarvedProcess)
    await _refusal(grammars, "hang")
    assert sum(starved) >= 3 * DEADLINE


async def test_a_grammar_that_crashes_the_compiler_is_refused(grammars: GrammarProcess) -> None:
    assert "crashed" in await _refusal(grammars, "crash")
    await grammars.check(_grammar("good"), "response_format")


async def test_a_process_that_dies_idle_is_replaced_and_blames_nobody(grammars: GrammarProcess) -> None:
    await grammars.check(_grammar("good"), "response_format")
    pid = grammars.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await grammars.check(_grammar("another"), "response_format")
    assert grammars.pid != pid


@pytest.mark.parametrize("milliseconds", range(10))
async def test_a_stop_while_a_dead_process_is_replaced_ends_all(grammars: GrammarProcess, milliseconds: int) -> None:
    await grammars.check(_grammar("good"), "response_format")
    assert grammars.pid is not None
    os.kill(grammars.pid, signal.SIGKILL)
    await asyncio.sleep(milliseconds / 1000)
    async with asyncio.timeout(PATIENCE):
        await grammars.stop()
    # The next process may not have been started yet.
    if (pid := grammars.pid) is not None:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_a_caller_that_gives_up_does_not_mix_up_the_answers(grammars: GrammarProcess) -> None:
    given_up = asyncio.create_task(grammars.check(_grammar("fault"), "response_format"))
    await asyncio.sleep(0)
    given_up.cancel()
    await grammars.check(_grammar("good"), "response_format")
    assert "no rule" in await _refusal(grammars, "fault")


async def test_a_process_that_does_not_load_refuses_as_a_fault_of_the_worker(tmp_path: Path) -> None:
    options = GrammarOptions(path=str(tmp_path / "missing"))
    process = GrammarProcess(options, max_seconds=0.25, module=FAULTY)
    with pytest.raises(RequestRefused, match="no such tokenizer") as refusal:
        await process.check(_grammar("good"), "response_format")
    assert refusal.value.problem.kind is ProblemKind.INTERNAL
    await process.stop()
