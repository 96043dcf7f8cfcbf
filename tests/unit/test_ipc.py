"""The message stream between a parent and its child process."""

import socket
import struct
import threading
from collections.abc import Iterator

import msgspec
import pytest

from worker.ipc import Child, ChildChannel

Channel = ChildChannel[list[int], list[int]]


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, Channel]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, ChildChannel(theirs, msgspec.msgpack.Decoder(list[int]))


def framed(message: list[int]) -> bytes:
    body = msgspec.msgpack.encode(message)
    return struct.pack(">I", len(body)) + body


def test_messages_cut_anywhere_arrive_whole_and_in_order(ends: tuple[socket.socket, Channel]) -> None:
    parent, channel = ends
    sent = [[1], list(range(300)), [], [7, 7]]
    stream = b"".join(framed(message) for message in sent)

    def send() -> None:
        for start in range(0, len(stream), 3):
            parent.sendall(stream[start : start + 3])

    sender = threading.Thread(target=send)
    sender.start()
    received: list[list[int]] = []
    while len(received) < len(sent):
        received += channel.receive(None)
    sender.join()
    assert received == sent


def test_polling_returns_nothing_when_nothing_has_come(ends: tuple[socket.socket, Channel]) -> None:
    parent, channel = ends
    assert channel.receive(0) == []
    parent.sendall(framed([1])[:1])
    assert channel.receive(0) == []


def test_the_parents_end_is_told(ends: tuple[socket.socket, Channel]) -> None:
    parent, channel = ends
    parent.sendall(framed([1]))
    parent.close()
    assert channel.receive(None) == [[1]]
    with pytest.raises(EOFError):
        channel.receive(None)


def test_a_message_larger_than_the_sockets_buffer_passes(ends: tuple[socket.socket, Channel]) -> None:
    parent, channel = ends
    message = list(range(500_000))
    sender = threading.Thread(target=parent.sendall, args=(framed(message),))
    sender.start()
    received = channel.receive(None)
    while not received:
        received = channel.receive(None)
    sender.join()
    assert received == [message]


async def test_a_child_that_was_not_started_has_no_messages() -> None:
    child: Child[list[int], list[int]] = Child("worker.engine.child", [], msgspec.msgpack.Decoder(list[int]))
    child.send([1])
    with pytest.raises(RuntimeError, match="not been started"):
        async for _ in child.messages():
            pass
    assert await child.stop() == 0
