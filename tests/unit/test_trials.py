"""Whose fault an engine's death is."""

import asyncio

from worker.trials import TRIAL_TOKENS, Trials


def test_without_a_trial_everyone_is_suspect() -> None:
    assert Trials().blamed(["a", "b"]) == {"a", "b"}


async def test_on_trial_only_the_suspect_is_to_blame() -> None:
    trials = Trials()
    await trials.begin("a", 10)
    assert trials.blamed(["a", "b"]) == {"a"}


async def test_suspects_take_turns() -> None:
    trials = Trials()
    await trials.begin("a", 10)
    second = asyncio.create_task(trials.begin("b", 0))
    await asyncio.sleep(0)
    trials.progressed("a", 10 + TRIAL_TOKENS - 1)
    trials.progressed("c", 1000)
    await asyncio.sleep(0)
    assert not second.done()
    trials.progressed("a", 10 + TRIAL_TOKENS)
    await second
    assert trials.blamed(["a", "b"]) == {"b"}
    trials.end("a")
    assert trials.blamed(["a", "b"]) == {"b"}
    trials.end("b")
    assert trials.blamed(["a"]) == {"a"}


def test_a_crash_makes_a_suspect_at_once_and_a_vanished_worker_does_not() -> None:
    assert Trials.concerns(crashes=1, lapses=0)
    assert not Trials.concerns(crashes=0, lapses=1)
    assert Trials.concerns(crashes=0, lapses=2)
