"""The server's side of a WebSocket: limits, deadlines, and whatever clients send."""

import asyncio
import json
import random
from types import SimpleNamespace
from typing import cast

import pytest
from quart import Request
from wsproto.connection import Connection, ConnectionType
from wsproto.events import CloseConnection, Event, Message, Ping, Pong, TextMessage

from api.replica import Replica
from api.responses.connection_memory import ConnectionMemories
from api.responses.session import ResponseSession
from api.websocket.socket import MAX_FRAMES, PING_INTERVAL, CloseCode, SocketBounds, WebSocket

BOUNDS = SocketBounds(max_message=100, message_timeout=10, client_timeout=5)


class Link:
    """A connection that only notes what happens to it."""

    def __init__(self) -> None:
        self.sent = b""
        self.closed = False
        self.aborted = False
        self.write_paused = False
        self.idle = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.sent += data

    async def drain(self) -> None:
        await asyncio.Event().wait()

    def is_closing(self) -> bool:
        return self.closed or self.aborted

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True

    def set_idle(self, *, idle: bool) -> None:
        self.idle = idle


class Peer:
    """A WebSocket and its client."""

    def __init__(self, bounds: SocketBounds = BOUNDS) -> None:
        self.link = Link()
        self.socket = WebSocket(self.link, bounds)
        self._client = Connection(ConnectionType.CLIENT)
        self.now = asyncio.get_running_loop().time()

    def send(self, *events: Event) -> None:
        self.socket.receive(b"".join(self._client.send(event) for event in events))

    def received(self) -> list[Event]:
        self._client.receive_data(self.link.sent)
        self.link.sent = b""
        return list(self._client.events())

    def close_code(self) -> int:
        *_, last = self.received()
        assert isinstance(last, CloseConnection)
        assert self.link.closed
        return last.code

    def tick(self, seconds: float) -> None:
        self.socket.tick(self.now + seconds)


async def test_messages_and_pings() -> None:
    peer = Peer()
    peer.send(Message("h\u00e9", message_finished=False), Ping(b"1"), Message("llo"), Message("next"))
    assert [await peer.socket.message() for _ in range(2)] == ["h\u00e9llo".encode(), b"next"]
    assert peer.received() == [Pong(b"1")]
    await peer.socket.send([b"a", "\u00e9".encode()])
    assert [event.data for event in peer.received() if isinstance(event, TextMessage)] == ["a", "\u00e9"]


async def test_pongs_are_not_buffered_for_a_client_that_does_not_read() -> None:
    peer = Peer()
    peer.link.write_paused = True
    peer.send(*[Ping(b"1")] * 100)
    peer.tick(PING_INTERVAL + 1)
    assert not peer.link.sent


@pytest.mark.parametrize(
    ("events", "code"),
    [
        ([Message("a" * 101)], CloseCode.TOO_BIG),
        ([Message("a" * 60, message_finished=False), Message("a" * 60)], CloseCode.TOO_BIG),
        ([Message("\u00e9" * 51)], CloseCode.TOO_BIG),
        ([Message(b"a")], CloseCode.UNSUPPORTED),
        ([Message("a" * 60), Message("a" * 60)], CloseCode.POLICY),
        ([Message("a")] * 17, CloseCode.POLICY),
        ([Message("", message_finished=False)] * (MAX_FRAMES + 1), CloseCode.POLICY),
        ([CloseConnection(code=4000)], 4000),
    ],
)
async def test_what_closes(events: list[Event], code: int) -> None:
    peer = Peer()
    peer.send(*events)
    assert peer.close_code() == code


async def test_one_message_may_be_as_large_as_all_that_wait() -> None:
    peer = Peer()
    for _ in range(3):
        peer.send(Message("a" * 100))
        assert len(await peer.socket.message() or b"") == 100
    assert not peer.link.closed


async def test_a_slow_message_closes() -> None:
    peer = Peer()
    peer.send(Message("a", message_finished=False))
    peer.tick(BOUNDS.message_timeout - 1)
    assert not peer.link.closed
    peer.tick(BOUNDS.message_timeout + 1)
    assert peer.close_code() == CloseCode.POLICY


async def test_a_silent_client_gets_a_ping_and_is_disconnected() -> None:
    peer = Peer()
    peer.tick(PING_INTERVAL + 1)
    peer.tick(PING_INTERVAL + 2)
    assert peer.received() == [Ping()]
    peer.send(Pong())
    peer.tick(PING_INTERVAL + 1)
    assert peer.received() == [Ping()]
    peer.tick(PING_INTERVAL + BOUNDS.client_timeout + 1)
    assert peer.link.aborted


async def test_a_client_that_does_not_read_is_disconnected() -> None:
    peer = Peer(SocketBounds(max_message=100, message_timeout=10, client_timeout=0.01))
    peer.link.write_paused = True
    await peer.socket.send([b"a"])
    assert peer.link.aborted
    await peer.socket.send([b"b"])


async def test_a_shutdown_ends_the_messages() -> None:
    peer = Peer()
    waiting = asyncio.create_task(peer.socket.message())
    await asyncio.sleep(0)
    peer.socket.shut_down()
    assert await waiting is None
    peer.send(Message("late"))
    assert await peer.socket.message() is None


async def test_whatever_is_sent_does_not_fail() -> None:
    chance = random.Random(11)
    for _ in range(2000):
        peer = Peer()
        while len(peer.link.sent) < 1000 and not peer.link.is_closing() and chance.random() < 0.9:
            start = bytes(
                [chance.choice((0x00, 0x01, 0x80, 0x81, 0x82, 0x88, 0x89, 0x8A, 0xC1, chance.randrange(256)))]
            )
            size = chance.choice((0x80, 0x81, 0x85, 0xFE, 0xFF, chance.randrange(256)))
            peer.socket.receive(start + bytes([size]) + chance.randbytes(chance.randrange(20)))


def session(peer: Peer, idle_timeout: float) -> ResponseSession:
    settings = SimpleNamespace(max_body=100, request_timeout=idle_timeout)
    replica = SimpleNamespace(settings=settings, memories=ConnectionMemories(1000))
    return ResponseSession(cast(Replica, replica), cast(Request, None), peer.socket)


async def test_an_idle_session_ends() -> None:
    peer = Peer()
    await session(peer, 0.01).run()
    assert peer.close_code() == CloseCode.GOING_AWAY


async def test_an_old_session_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.responses.session.LIFETIME", 0.0001)
    peer = Peer()
    await session(peer, 600).run()
    error, end = peer.received()
    assert isinstance(error, TextMessage)
    assert json.loads(error.data)["error"]["code"] == "websocket_connection_limit_reached"
    assert isinstance(end, CloseConnection)
