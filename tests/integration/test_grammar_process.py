"""The grammar process: results of checks, and their cache."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from shared.protocol.errors import ProblemKind, RequestRefused
from tests.integration.faulty_service import MODULE, FaultyOptions
from worker.engine.protocol import OutputGrammar
from worker.grammar.messages import GrammarOptions
from worker.grammar.service import GrammarProcess

COSTS = {"[2, ['costly'": 31.0, "costly": 0.01, "good": 0.01, "slow": 2.0}
"""Replies to calls with these words. A profile is a call with tag 2."""


def _process(folder: Path) -> GrammarProcess:
    options = cast(GrammarOptions, FaultyOptions(str(folder), COSTS))
    return GrammarProcess(options, max_seconds=0.5, module=MODULE)


COMPILE_AND_PROFILE = 2
"""Calls for a grammar that is accepted."""


@pytest.fixture
async def grammars(tmp_path: Path) -> AsyncIterator[GrammarProcess]:
    process = _process(tmp_path)
    process.start()
    yield process
    await process.stop()


def _calls(folder: Path) -> int:
    """Return how many calls the process was given."""
    return len((folder / "calls").read_text().splitlines())


async def _refusal(grammars: GrammarProcess, text: str) -> str:
    with pytest.raises(RequestRefused) as refusal:
        await grammars.check(OutputGrammar(text), "tools", "a")
    problem = refusal.value.problem
    assert (problem.kind, problem.param) == (ProblemKind.INVALID, "tools")
    assert problem.message.startswith("The grammar that 'tools' asks for was refused. ")
    return problem.message


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("refuse", ("no rule 'root'",)),
        ("slow", ("2.00 s", "0.5 s")),
        ("costly", ("31 times", "4 times is the limit")),
        ("hang", ("more than 1 s",)),
        ("crash", ("crashed",)),
    ],
)
async def test_a_refusal_gives_the_reason_and_is_cached(
    grammars: GrammarProcess, tmp_path: Path, text: str, parts: tuple[str, ...]
) -> None:
    message = await _refusal(grammars, text)
    assert all(part in message for part in parts)
    calls = _calls(tmp_path)
    assert await _refusal(grammars, text) == message
    assert _calls(tmp_path) == calls


async def test_a_grammar_is_compiled_once(grammars: GrammarProcess, tmp_path: Path) -> None:
    await asyncio.gather(*(grammars.check(OutputGrammar("good"), "tools", "a") for _ in range(5)))
    assert _calls(tmp_path) == COMPILE_AND_PROFILE


async def test_the_kind_is_part_of_the_cache_key(grammars: GrammarProcess, tmp_path: Path) -> None:
    await grammars.check(OutputGrammar("good"), "tools", "a")
    await grammars.check(OutputGrammar("good", tagged=True), "tools", "a")
    assert _calls(tmp_path) == 2 * COMPILE_AND_PROFILE


async def test_tenants_do_not_share_results(grammars: GrammarProcess, tmp_path: Path) -> None:
    for tenant in ("a", "b", "a", "b"):
        await grammars.check(OutputGrammar("good"), "tools", tenant)
    assert _calls(tmp_path) == 2 * COMPILE_AND_PROFILE


async def test_a_caller_that_gives_up_leaves_the_result_to_others(grammars: GrammarProcess, tmp_path: Path) -> None:
    given_up = asyncio.create_task(grammars.check(OutputGrammar("refuse"), "tools", "a"))
    await asyncio.sleep(0)
    given_up.cancel()
    assert "no rule" in await _refusal(grammars, "refuse")
    assert _calls(tmp_path) == 1


async def test_a_failure_of_the_worker_is_not_cached(tmp_path: Path) -> None:
    process = _process(tmp_path / "late")
    with pytest.raises(RequestRefused, match="no such folder") as refusal:
        await process.check(OutputGrammar("good"), "tools", "a")
    assert refusal.value.problem.kind is ProblemKind.INTERNAL
    (tmp_path / "late").mkdir()
    await process.check(OutputGrammar("good"), "tools", "a")
    await process.stop()
