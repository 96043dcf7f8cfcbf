"""Child processes: messages arrive whole and in order although all reads share one buffer, and ends are reported."""

import asyncio
import os
import signal
from collections.abc import Callable

import msgspec
import pytest

from tests.integration.talking_child import EARLY, LATE, Numbers, TalkerMessage, TalkerOptions, TalkerReady
from tests.support.eventually import PATIENCE, eventually
from worker.processes.child import ChildProcess, LoadError

RawMessage = TalkerMessage[msgspec.Raw]
Talker = ChildProcess[RawMessage, Numbers[list[int]], TalkerReady]


def talker(on_numbers: Callable[[list[int]], None], *, fails: bool = False, malformed: bool = False) -> Talker:
    def on_message(message: RawMessage) -> None:
        assert isinstance(message, Numbers)
        on_numbers(msgspec.msgpack.decode(message.body, type=list[int]))

    decoder: msgspec.msgpack.Decoder[RawMessage] = msgspec.msgpack.Decoder(RawMessage)
    return ChildProcess(
        "tests.integration.talking_child",
        TalkerOptions(fails=fails, malformed=malformed),
        decoder,
        name="talker",
        ready=TalkerReady,
        on_message=on_message,
    )


async def test_each_message_arrives_once_whole_and_in_order() -> None:
    answers = [[number] * (number % 7 * 9_000) for number in range(40)]
    received: list[list[int]] = []

    def on_numbers(numbers: list[int]) -> None:
        received.append(numbers)
        if len(received) == len(EARLY) + len(LATE) + len(answers):
            child.kill()

    child = talker(on_numbers)
    await child.start()
    async with asyncio.timeout(PATIENCE):
        await child.loaded()
        assert received[: len(EARLY)] == EARLY
        for answer in answers:
            child.send(Numbers(answer))
        await child.ended()
    assert received == [*EARLY, *LATE, *answers]
    await child.stop()
    assert child.exit_description == "was killed by SIGKILL"


async def test_a_callback_that_fails_ends_the_delivery() -> None:
    received: list[list[int]] = []

    def on_numbers(numbers: list[int]) -> None:
        received.append(numbers)
        if len(received) > len(EARLY):
            raise ValueError("enough")

    child = talker(on_numbers)
    await child.start()
    async with asyncio.timeout(PATIENCE):
        await child.loaded()
        with pytest.raises(ValueError, match="enough"):
            await child.ended()
        await child.stop()
    assert received == [*EARLY, LATE[0]]
    assert child.exit_code is not None


async def test_a_child_that_cannot_load_says_why() -> None:
    child = talker(lambda numbers: None, fails=True)
    await child.start()
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(LoadError, match="nothing to load"):
            await child.loaded()
        await child.ended()
    await child.stop()


async def test_a_child_that_sends_malformed_bytes_has_ended() -> None:
    child = talker(lambda numbers: None, malformed=True)
    await child.start()
    async with asyncio.timeout(PATIENCE):
        await child.ended()
        with pytest.raises(LoadError, match="the talker ended with exit code 0 while it loaded"):
            await child.loaded()


async def test_a_stop_that_is_cancelled_kills_the_child_and_waits_for_it() -> None:
    child = talker(lambda numbers: None)
    await child.start()
    async with asyncio.timeout(PATIENCE):
        await child.loaded()
        assert child.pid is not None
        os.kill(child.pid, signal.SIGSTOP)  # so it does not see that the channel was closed
        stopping = asyncio.create_task(child.stop(patience=PATIENCE))
        await asyncio.sleep(0)
        stopping.cancel()
        await asyncio.wait([stopping])
    assert stopping.cancelled()
    assert child.exit_description == "was killed by SIGKILL"


async def test_a_child_that_was_not_started_has_ended() -> None:
    child = talker(lambda numbers: None)
    child.send(Numbers([1]))
    async with asyncio.timeout(PATIENCE):
        await child.ended()
        with pytest.raises(LoadError):
            await child.loaded()
    await child.stop()
    assert child.pid is None


@pytest.mark.parametrize("error", [OSError("no more processes"), asyncio.CancelledError()])
async def test_a_start_that_fails_leaves_no_file_open(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    async def fails(*_: object, **__: object) -> None:
        raise error

    child = talker(lambda numbers: None)
    before = set(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patched:
        patched.setattr(asyncio, "create_subprocess_exec", fails)
        with pytest.raises(type(error)):
            await child.start()
        # A thread closes the output. The collection of what earlier tests left may close files, too.
        await eventually(lambda: set(os.listdir("/proc/self/fd")) <= before)
