"""Whose fault an engine's death is."""

import asyncio

from worker.jobs.quarantine import QUARANTINE_TOKENS, Quarantine


def test_without_a_trial_everyone_is_suspect() -> None:
    assert Quarantine().suspects(["a", "b"]) == {"a", "b"}


async def test_on_trial_only_the_suspect_is_to_blame() -> None:
    quarantine = Quarantine()
    await quarantine.enter("a", 10)
    assert quarantine.suspects(["a", "b"]) == {"a"}


async def test_a_suspect_that_is_not_in_the_engine_is_not_to_blame() -> None:
    quarantine = Quarantine()
    await quarantine.enter("a", 10)
    assert quarantine.suspects(["b", "c"]) == {"b", "c"}


async def test_suspects_take_turns() -> None:
    quarantine = Quarantine()
    await quarantine.enter("a", 10)
    second = asyncio.create_task(quarantine.enter("b", 0))
    await asyncio.sleep(0)
    quarantine.record_progress("a", 10 + QUARANTINE_TOKENS - 1)
    quarantine.record_progress("c", 1000)
    await asyncio.sleep(0)
    assert not second.done()
    quarantine.record_progress("a", 10 + QUARANTINE_TOKENS)
    await second
    assert quarantine.suspects(["a", "b"]) == {"b"}
    quarantine.leave("a")
    assert quarantine.suspects(["a", "b"]) == {"b"}
    quarantine.leave("b")
    assert quarantine.suspects(["a"]) == {"a"}


def test_a_crash_makes_a_suspect_at_once_and_a_vanished_worker_does_not() -> None:
    assert Quarantine.is_suspect(crashes=1, lost_workers=0)
    assert not Quarantine.is_suspect(crashes=0, lost_workers=1)
    assert Quarantine.is_suspect(crashes=0, lost_workers=2)
