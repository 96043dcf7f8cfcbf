"""Timeouts in the clean-up of a cancelled task, which Python before 3.11.3 turned into another cancellation."""

import asyncio

import shared  # noqa: F401  # mends them


async def test_a_timeout_of_a_clean_up_is_no_cancellation() -> None:
    caught: list[type[BaseException]] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            try:
                async with asyncio.timeout(0):
                    await asyncio.Event().wait()
            except BaseException as error:
                caught.append(type(error))

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert caught == [TimeoutError]


async def test_a_cancellation_during_a_timeout_stays_one() -> None:
    async def work() -> None:
        async with asyncio.timeout(60):
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
