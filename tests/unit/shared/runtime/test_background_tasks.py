"""Background tasks that fail start again, and say so once."""

import asyncio
import logging

import pytest

from shared.runtime import tasks
from shared.runtime.tasks import BackgroundTasks, cancel_all, keep_running
from tests.support.eventually import PATIENCE


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "_BACKOFF", (0.001, 0.001))


async def test_a_task_that_fails_starts_again_and_its_failure_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    runs = 0
    settled = asyncio.Event()

    async def work() -> None:
        nonlocal runs
        runs += 1
        if runs <= 5:
            raise ValueError(f"failure {runs}")
        if runs == 6:
            raise KeyError("another")
        settled.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(keep_running("work", work))
    async with asyncio.timeout(PATIENCE):
        await settled.wait()
    assert runs == 7
    logged = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [type(record.exc_info[1]) for record in logged if record.exc_info] == [ValueError, KeyError]
    await cancel_all([running])
    assert running.cancelled()


async def test_a_task_that_returns_starts_again() -> None:
    again = asyncio.Event()
    runs = 0

    async def work() -> None:
        nonlocal runs
        runs += 1
        if runs > 2:
            again.set()

    running = asyncio.create_task(keep_running("work", work))
    async with asyncio.timeout(PATIENCE):
        await again.wait()
    await cancel_all([running])


async def test_the_failure_of_an_errand_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ValueError("no")

    background_tasks = BackgroundTasks()
    background_tasks.run(fail(), "an errand")
    await background_tasks.finish(10)
    assert "'an errand' failed" in caplog.text
