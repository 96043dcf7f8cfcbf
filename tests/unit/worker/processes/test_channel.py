"""The child's end of the channel between the supervisor and a subprocess."""

import socket
import struct
import threading
from collections.abc import Iterator

import msgspec
import pytest

from worker.processes import channel as channel_module
from worker.processes.channel import ChildChannel

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


def test_polling_waits_for_the_rest_of_a_message(
    ends: tuple[socket.socket, Channel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_module, "_MAX_PARTIAL_WAIT", 60)
    parent, channel = ends
    sent = list(range(100_000))
    stream = framed(sent)
    parent.sendall(stream[:10])
    sender = threading.Timer(0.02, parent.sendall, [stream[10:]])
    sender.start()
    assert channel.receive(0) == [sent]
    sender.join()


def test_all_messages_that_have_been_sent_are_received_at_once(ends: tuple[socket.socket, Channel]) -> None:
    parent, channel = ends
    sent = [list(range(20_000)) for _ in range(3)]
    for message in sent:
        parent.sendall(framed(message))
    assert channel.receive(0) == sent


@pytest.mark.parametrize("timeout", [0, None])
def test_messages_before_the_end_are_received_and_the_end_is_noticed(
    ends: tuple[socket.socket, Channel], timeout: float | None
) -> None:
    parent, channel = ends
    parent.sendall(framed([1]) + framed([2])[:3])
    parent.close()
    assert channel.receive(timeout) == [[1]]
    with pytest.raises(EOFError):
        channel.receive(timeout)


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


def test_served_messages_are_replied_to_until_the_parent_closes_its_end(ends: tuple[socket.socket, Channel]) -> None:
    parent, channel = ends
    parent.sendall(framed([1, 2]) + framed([3]))
    parent.shutdown(socket.SHUT_WR)
    channel.serve(lambda numbers: [*numbers, 0])
    assert parent.recv(1000) == framed([1, 2, 0]) + framed([3, 0])


def test_a_parent_that_ends_with_unread_replies_ends_serving(ends: tuple[socket.socket, Channel]) -> None:
    parent, channel = ends

    def reply(numbers: list[int]) -> list[int]:
        if numbers == [2]:
            parent.close()
        return numbers

    parent.sendall(framed([1]) + framed([2]) + framed([3]))
    channel.serve(reply)
