"""What a child says reaches its parent whole, and as it was said, though all reads share one piece of memory."""

import asyncio

import msgspec

from tests.integration.talking_child import FIRST
from worker.ipc import Child

PATIENCE = 30.0


def talking_child() -> Child[msgspec.Raw, list[int]]:
    return Child("tests.integration.talking_child", [], msgspec.msgpack.Decoder(msgspec.Raw))


def numbers(message: msgspec.Raw | bytes) -> list[int]:
    return msgspec.msgpack.decode(message, type=list[int])


async def test_what_is_gathered_stays_as_it_was_said() -> None:
    child = talking_child()
    await child.start()
    said: list[msgspec.Raw] = []
    async with asyncio.timeout(PATIENCE):
        async for message in child.messages():
            said.append(message)
            if len(said) == len(FIRST):
                break
    assert [numbers(message) for message in said] == FIRST
    await child.stop()


async def test_who_listens_hears_each_message_once_and_in_order() -> None:
    child = talking_child()
    await child.start()
    answers = [[number] * (number % 7 * 9_000) for number in range(40)]
    said: list[bytes] = []

    def subscribe(message: msgspec.Raw) -> None:
        said.append(bytes(message))
        if len(said) == len(FIRST):
            for answer in answers:
                child.send(answer)
        elif len(said) == len(FIRST) + len(answers):
            child.kill()

    async with asyncio.timeout(PATIENCE):
        await child.listen(subscribe)
    assert [numbers(message) for message in said] == [*FIRST, *answers]
    await child.stop()
