"""The prefix gate: prompts with a shared prefix wait for the first of them."""

import asyncio
from collections.abc import Sized
from typing import cast

import msgspec

from shared.protocol.request import Sampling
from tests.support.job_rig import Hold, attempt_of
from tests.support.jobs import job
from worker.engine.handle import EngineProcess
from worker.engine.protocol import EngineSequence
from worker.jobs.gates.prefix import PrefixGate

SHARED = tuple(range(1000))
BATCH_JOB = msgspec.structs.replace(job("b"), request=msgspec.structs.replace(job("b").request, tier="batch"))


def prompt(number: int, beginning: tuple[int, ...] = SHARED, *, tail: int = 50) -> tuple[int, ...]:
    return (*beginning, *range(number * 10_000, number * 10_000 + tail))


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def enter(
    gate: PrefixGate, number: int, tokens: tuple[int, ...], *, is_batch: bool = False, engine: object = None
) -> Hold:
    attempt = attempt_of(BATCH_JOB if is_batch else f"job {number}", number)
    attempt.sequence = EngineSequence(number=number, prompt=tokens, sampling=Sampling())
    attempt.engine = cast(EngineProcess, engine)
    return await gate.enter(attempt)


def start(gate: PrefixGate, number: int, tokens: tuple[int, ...], *, is_batch: bool = False) -> asyncio.Task[Hold]:
    return asyncio.create_task(enter(gate, number, tokens, is_batch=is_batch))


async def test_the_rest_waits_for_the_first_and_then_goes_together() -> None:
    prefix_gate = PrefixGate()
    first = await enter(prefix_gate, 1, prompt(1))
    rest = [start(prefix_gate, number, prompt(number)) for number in (2, 3, 4)]
    await settle()
    assert not any(task.done() for task in rest)
    first.progress(1)
    await settle()
    assert all(task.done() for task in rest)
    # What has been computed once is in the cache.
    await enter(prefix_gate, 5, prompt(5))


async def test_other_prompts_and_short_ones_wait_for_nobody() -> None:
    prefix_gate = PrefixGate()
    await enter(prefix_gate, 1, prompt(1))
    await enter(prefix_gate, 2, prompt(2, tuple(range(7, 1007))))
    await enter(prefix_gate, 3, SHARED[:255])
    await enter(prefix_gate, 4, SHARED[:255])


async def test_batch_requests_wait_for_all_and_other_requests_do_not_wait_for_them() -> None:
    prefix_gate = PrefixGate()
    first = await enter(prefix_gate, 1, prompt(1), is_batch=True)
    second = start(prefix_gate, 2, prompt(2), is_batch=True)
    await settle()
    assert not second.done()
    other = await enter(prefix_gate, 3, prompt(3))
    fourth = start(prefix_gate, 4, prompt(4))
    first.leave()
    await settle()
    assert (second.done(), fourth.done()) == (False, False), "neither waits for the third"
    other.progress(1)
    await second
    await fourth


async def test_when_the_first_fails_the_next_takes_its_place() -> None:
    prefix_gate = PrefixGate()
    first = await enter(prefix_gate, 1, prompt(1))
    second, third = (start(prefix_gate, number, prompt(number)) for number in (2, 3))
    await settle()
    first.leave()
    await settle()
    assert (second.done(), third.done()) == (True, False)
    (await second).progress(1)
    await settle()
    assert third.done()


async def test_one_that_is_cancelled_waits_no_longer_and_holds_up_nobody() -> None:
    prefix_gate = PrefixGate()
    first = await enter(prefix_gate, 1, prompt(1))
    waiting = start(prefix_gate, 2, prompt(2))
    await settle()
    waiting.cancel()
    await settle()
    assert waiting.cancelled()
    third = start(prefix_gate, 3, prompt(3))
    await settle()
    assert not third.done()
    first.progress(1)
    await third


async def test_nobody_waits_for_a_much_longer_prompt() -> None:
    prefix_gate = PrefixGate()
    await enter(prefix_gate, 1, prompt(1, tail=9000))
    await enter(prefix_gate, 2, prompt(2))


async def test_a_conversation_waits_only_for_what_is_not_computed_yet() -> None:
    prefix_gate = PrefixGate()
    first = await enter(prefix_gate, 1, prompt(1))
    first.progress(1)
    # All share a prefix and continue differently.
    await enter(prefix_gate, 2, prompt(2, tail=1000))
    other = await enter(prefix_gate, 3, prompt(3, tail=1000))
    same = start(prefix_gate, 4, prompt(3, tail=1000))
    await settle()
    assert not same.done()
    other.progress(1)
    await same


async def test_a_new_engine_has_computed_nothing() -> None:
    prefix_gate = PrefixGate()
    first = await enter(prefix_gate, 1, prompt(1))
    first.progress(1)
    other = await enter(prefix_gate, 2, prompt(2), engine="the next one")
    third = asyncio.create_task(enter(prefix_gate, 3, prompt(3), engine="the next one"))
    await settle()
    assert not third.done()
    other.progress(1)
    await third


async def test_nothing_is_left_of_sequences_that_are_over() -> None:
    prefix_gate = PrefixGate()
    for number in range(1, 200):
        hold = await enter(prefix_gate, number, prompt(number, tuple(range(number, number + 8000))))
        hold.progress(1)
        hold.leave()
    assert sum(len(held) for held in vars(prefix_gate).values() if isinstance(held, Sized)) <= 4096
    # The oldest are no longer taken for computed, so that the second of two waits for the first. The newest are.
    first = await enter(prefix_gate, 1001, prompt(1, tuple(range(1, 8001))))
    second = start(prefix_gate, 1002, prompt(1, tuple(range(1, 8001))))
    await settle()
    assert not second.done()
    first.progress(1)
    await second
    for number in (1003, 1004):
        await enter(prefix_gate, number, prompt(199, tuple(range(199, 8199))))
