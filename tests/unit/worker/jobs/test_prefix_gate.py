"""The prefix gate: prompts with a shared prefix wait for the first of them."""

import asyncio
from collections.abc import Sized

from worker.jobs.prefix_gate import PrefixGate

SHARED = tuple(range(1000))


def prompt(number: int, beginning: tuple[int, ...] = SHARED, *, tail: int = 50) -> tuple[int, ...]:
    return (*beginning, *range(number * 10_000, number * 10_000 + tail))


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def start(prefix_gate: PrefixGate, number: int, tokens: tuple[int, ...]) -> asyncio.Task[None]:
    return asyncio.create_task(prefix_gate.acquire(number, tokens))


async def test_the_rest_waits_for_the_first_and_then_goes_together() -> None:
    prefix_gate = PrefixGate()
    await prefix_gate.acquire(1, prompt(1))
    rest = [start(prefix_gate, number, prompt(number)) for number in (2, 3, 4)]
    await settle()
    assert not any(task.done() for task in rest)
    prefix_gate.release(1, computed=True)
    await settle()
    assert all(task.done() for task in rest)
    # What has been computed once is in the cache.
    await prefix_gate.acquire(5, prompt(5))


async def test_other_prompts_and_short_ones_wait_for_nobody() -> None:
    prefix_gate = PrefixGate()
    await prefix_gate.acquire(1, prompt(1))
    await prefix_gate.acquire(2, prompt(2, tuple(range(7, 1007))))
    await prefix_gate.acquire(3, SHARED[:255])
    await prefix_gate.acquire(4, SHARED[:255])


async def test_lines_of_batches_wait_for_all_and_other_requests_do_not_wait_for_lines() -> None:
    prefix_gate = PrefixGate()
    await prefix_gate.acquire(1, prompt(1), line=True)
    second = asyncio.create_task(prefix_gate.acquire(2, prompt(2), line=True))
    await settle()
    assert not second.done()
    await prefix_gate.acquire(3, prompt(3))
    fourth = start(prefix_gate, 4, prompt(4))
    prefix_gate.release(1, computed=False)
    await settle()
    assert (second.done(), fourth.done()) == (False, False), "neither waits for the third"
    prefix_gate.release(3, computed=True)
    await second
    await fourth


async def test_when_the_first_fails_the_next_takes_its_place() -> None:
    prefix_gate = PrefixGate()
    await prefix_gate.acquire(1, prompt(1))
    second, third = (start(prefix_gate, number, prompt(number)) for number in (2, 3))
    await settle()
    prefix_gate.release(1, computed=False)
    await settle()
    assert (second.done(), third.done()) == (True, False)
    prefix_gate.release(2, computed=True)
    await settle()
    assert third.done()


async def test_one_that_is_cancelled_waits_no_longer_and_holds_up_nobody() -> None:
    prefix_gate = PrefixGate()
    await prefix_gate.acquire(1, prompt(1))
    waiting = start(prefix_gate, 2, prompt(2))
    await settle()
    waiting.cancel()
    await settle()
    prefix_gate.release(2, computed=False)
    assert waiting.cancelled()
    third = start(prefix_gate, 3, prompt(3))
    await settle()
    assert not third.done()
    prefix_gate.release(1, computed=True)
    await third


async def test_nobody_waits_for_a_much_longer_prompt() -> None:
    prefix_gate = PrefixGate()
    await prefix_gate.acquire(1, prompt(1, tail=9000))
    await prefix_gate.acquire(2, prompt(2))


async def test_a_conversation_waits_only_for_what_is_not_computed_yet() -> None:
    prefix_gate = PrefixGate()
    await prefix_gate.acquire(1, prompt(1))
    prefix_gate.release(1, computed=True)
    # All share a prefix and continue differently.
    await prefix_gate.acquire(2, prompt(2, tail=1000))
    await prefix_gate.acquire(3, prompt(3, tail=1000))
    same = start(prefix_gate, 4, prompt(3, tail=1000))
    await settle()
    assert not same.done()
    prefix_gate.release(3, computed=True)
    await same


async def test_a_new_engine_has_computed_nothing() -> None:
    prefix_gate = PrefixGate()
    await prefix_gate.acquire(1, prompt(1))
    prefix_gate.release(1, computed=True)
    prefix_gate.forget()
    await prefix_gate.acquire(2, prompt(2))
    third = start(prefix_gate, 3, prompt(3))
    await settle()
    assert not third.done()
    prefix_gate.release(2, computed=True)
    await third


async def test_nothing_is_left_of_sequences_that_are_over() -> None:
    prefix_gate = PrefixGate()
    for number in range(1, 200):
        await prefix_gate.acquire(number, prompt(number, tuple(range(number, number + 8000))))
        prefix_gate.release(number, computed=True)
        prefix_gate.release(number, computed=False)
    assert sum(len(held) for held in vars(prefix_gate).values() if isinstance(held, Sized)) <= 4096
    # The oldest are no longer taken for computed, so that the second of two waits for the first. The newest are.
    await prefix_gate.acquire(1001, prompt(1, tuple(range(1, 8001))))
    second = start(prefix_gate, 1002, prompt(1, tuple(range(1, 8001))))
    await settle()
    assert not second.done()
    prefix_gate.release(1001, computed=True)
    await second
    for number in (1003, 1004):
        await prefix_gate.acquire(number, prompt(199, tuple(range(199, 8199))))
