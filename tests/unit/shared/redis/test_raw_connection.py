"""A line to the store, in the clear and with TLS: what is sent, what is taken, and how it breaks."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from socket import SO_SNDBUF, SOL_SOCKET, socket
from typing import Any, NoReturn, cast

import pytest
from redis.exceptions import ConnectionError, ResponseError

import shared.redis.subscription
from shared.redis.client import raw_connection
from shared.redis.raw_connection import RawConnection
from shared.redis.reconnections import Reconnections
from shared.redis.subscription import PROBE, Publish, stay_subscribed, subscribe
from tests.support.eventually import PATIENCE, eventually
from tests.unit.shared.redis.fake_redis_server import LittleStore, fake_redis_server


@pytest.fixture(params=[False, True], ids=["in the clear", "TLS"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[LittleStore]:
    async with fake_redis_server(tls=request.param) as running:
        yield running


@pytest.fixture
async def open_connection(store: LittleStore) -> AsyncIterator[RawConnection]:
    made = raw_connection(store.url)
    await made.open()
    yield made
    made.close()


async def until(line: RawConnection, count: int) -> list[Any]:
    """Take answers until there are ``count``."""
    taken: list[Any] = []
    arrived = asyncio.Event()
    line.watch(arrived.set)
    async with asyncio.timeout(PATIENCE):
        while len(taken) < count:
            await arrived.wait()
            arrived.clear()
            taken += line.replies()
    line.unwatch()
    return taken


async def test_replies_come_in_order_and_errors_are_among_them(open_connection: RawConnection) -> None:
    assert open_connection.replies() == []
    open_connection.send("ECHO", "one")
    open_connection.send("REFUSE")
    open_connection.send("ECHO", b"three")
    first, second, third = await until(open_connection, 3)
    assert (first, third) == (b"one", b"three")
    assert isinstance(second, ResponseError)


async def test_what_the_socket_does_not_take_at_once_follows_in_order(open_connection: RawConnection) -> None:
    open_connection._open_socket().setsockopt(SOL_SOCKET, SO_SNDBUF, 1 << 16)
    large = b"x" * 2_000_000
    open_connection.send("ECHO", large)
    assert open_connection._unsent
    open_connection.send("ECHO", "after it")
    assert await until(open_connection, 2) == [large, b"after it"]


class Trickle:
    """A socket that accepts 1,000 bytes at a time, and records whose memory they are in."""

    def __init__(self, connected: Any) -> None:
        self._connected = connected
        self.owners: list[object] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connected, name)

    def send(self, data: bytes | memoryview) -> int:
        view = memoryview(data)
        self.owners.append(view.obj)
        sent: int = self._connected.send(view[:1000])
        return sent


async def test_what_is_sent_in_parts_is_not_copied() -> None:
    async with fake_redis_server(tls=False) as store:
        line = raw_connection(store.url)
        await line.open()
        trickle = Trickle(line._socket)
        line._socket = cast(socket, trickle)
        for _ in range(2):
            line.send("ECHO", b"x" * 100_000)
        assert await until(line, 2) == [b"x" * 100_000] * 2
        line.close()
    assert len(trickle.owners) >= 200
    assert len({id(owner) for owner in trickle.owners}) == 2


async def test_nobody_is_told_who_does_not_watch(store: LittleStore, open_connection: RawConnection) -> None:
    called = asyncio.Event()
    open_connection.watch(called.set)
    open_connection.unwatch()
    open_connection.send("ECHO", "quiet")
    replies: list[object] = []

    def has_replied() -> bool:
        replies.extend(open_connection.replies())
        return bool(replies)

    await eventually(has_replied, "a reply")
    assert replies == [b"quiet"]
    assert not called.is_set()


async def test_a_connection_that_the_store_closes_breaks(open_connection: RawConnection) -> None:
    open_connection.send("HANG", "UP")
    with pytest.raises(ConnectionError):
        await until(open_connection, 1)


async def test_a_connection_can_be_opened_again(store: LittleStore, open_connection: RawConnection) -> None:
    open_connection.close()
    assert not open_connection.is_open
    with pytest.raises(ConnectionError):
        open_connection.send("ECHO", "x")
    with pytest.raises(ConnectionError):
        open_connection.replies()
    await open_connection.open()
    open_connection.send("ECHO", "back")
    assert await until(open_connection, 1) == [b"back"]
    assert len(store.connections) == 2


async def test_commands_on_opening_have_been_replied_to(store: LittleStore) -> None:
    made = raw_connection(store.url)
    await made.open(("SCRIPT", "LOAD", "return 1"))
    assert [b"SCRIPT", b"LOAD", b"return 1"] in store.heard
    assert made.replies() == []
    with pytest.raises(ResponseError):
        await made.open(("REFUSE",))
    assert not made.is_open


async def test_nobody_there() -> None:
    async with fake_redis_server(tls=False) as store:
        pass
    with pytest.raises(ConnectionError):
        await raw_connection(store.url).open()


def publish_to(store: LittleStore) -> Publish:
    async def publish(_: str, message: bytes) -> None:
        store.publish(message)

    return publish


def subscribed_to(
    store: LittleStore,
    on_message: Callable[[bytes], None],
    *,
    publish: Publish | None = None,
    on_subscribed: Callable[[], None] = lambda: None,
) -> Coroutine[None, None, NoReturn]:
    """Subscribe to the only channel of ``store``."""
    return subscribe(
        raw_connection(store.url),
        "channel",
        on_message,
        publish=publish or publish_to(store),
        reconnections=Reconnections(),
        on_subscribed=on_subscribed,
    )


async def test_messages_are_handed_on_until_the_store_goes(store: LittleStore) -> None:
    heard: list[bytes] = []
    subscribed, second = asyncio.Event(), asyncio.Event()

    def listen(message: bytes) -> None:
        heard.append(message)
        if len(heard) == 2:
            second.set()

    hearing = asyncio.create_task(subscribed_to(store, listen, on_subscribed=subscribed.set))
    async with asyncio.timeout(PATIENCE):
        await subscribed.wait()
        store.publish(b"one")
        store.publish(b"two")
        await second.wait()
        store.connections[0].close()
        with pytest.raises(ConnectionError):
            await hearing
    assert heard == [b"one", b"two"]


async def test_a_lost_subscription_is_made_again(store: LittleStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared.redis.subscription, "_RECONNECT_DELAY", 0.01)
    steps: asyncio.Queue[str] = asyncio.Queue()
    reconnections = Reconnections()
    task = asyncio.create_task(
        stay_subscribed(
            raw_connection(store.url),
            "channel",
            lambda message: steps.put_nowait(message.decode()),
            publish=publish_to(store),
            reconnections=reconnections,
            part="test",
            on_subscribed=lambda: steps.put_nowait("subscribed"),
            on_lost=lambda: steps.put_nowait("lost"),
        )
    )
    async with asyncio.timeout(PATIENCE):
        assert await steps.get() == "subscribed"
        store.connections.pop(0).close()
        assert [await steps.get() for _ in range(2)] == ["lost", "subscribed"]
        store.publish(b"again")
        assert await steps.get() == "again"
        reconnections.lost()  # Another connection was lost.
        assert [await steps.get() for _ in range(2)] == ["lost", "subscribed"]
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert steps.get_nowait() == "lost"


async def test_a_quiet_subscription_probes_itself_and_stays_subscribed(
    store: LittleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared.redis.subscription, "PROBE_AFTER", 0.01)
    monkeypatch.setattr(shared.redis.subscription, "PROBE_TIMEOUT", 0.1)
    probes = asyncio.Queue[bytes]()
    publish = publish_to(store)

    async def counted(channel: str, message: bytes) -> None:
        probes.put_nowait(message)
        await publish(channel, message)

    heard: list[bytes] = []
    hearing = asyncio.create_task(subscribed_to(store, heard.append, publish=counted))
    async with asyncio.timeout(PATIENCE):
        assert [await probes.get() for _ in range(3)] == [PROBE] * 3
        assert not hearing.done()
        hearing.cancel()
        await asyncio.wait([hearing])
    assert not heard, "probes are nobody's messages"


async def test_a_subscription_without_messages_is_noticed(store: LittleStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared.redis.subscription, "PROBE_AFTER", 0.01)
    monkeypatch.setattr(shared.redis.subscription, "PROBE_TIMEOUT", 0.01)

    async def answered_without_receivers(channel: str, message: bytes) -> None: ...

    async def refused(channel: str, message: bytes) -> None:
        raise ConnectionError

    for publish in (answered_without_receivers, refused):
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(ConnectionError, match="publishes to itself do not arrive"):
                await subscribed_to(store, lambda _: None, publish=publish)


async def test_a_listener_that_fails_ends_the_subscription(store: LittleStore) -> None:
    def fail(message: bytes) -> None:
        raise ValueError(message.decode())

    subscribed = asyncio.Event()
    hearing = asyncio.create_task(subscribed_to(store, fail, on_subscribed=subscribed.set))
    async with asyncio.timeout(PATIENCE):
        await subscribed.wait()
        store.publish(b"no")
        with pytest.raises(ValueError, match="no"):
            await hearing
