"""Subscription to one pub/sub channel of Redis or Valkey."""

import asyncio
from collections.abc import Callable
from typing import NoReturn

from redis.exceptions import ConnectionError, RedisError

from shared.redis import outage
from shared.redis.raw_connection import RawConnection

PING_AFTER = 5.0
"""Seconds without data after which a PING is sent. Keep-alive detects a dead host; PING detects a hanging store."""

PING_TIMEOUT = 5.0
"""Seconds within which a PING must be replied to."""

_RECONNECT_DELAY = 0.25
"""Seconds between attempts to subscribe while the store is unreachable."""


async def stay_subscribed(
    connection: RawConnection,
    channel: str,
    on_message: Callable[[bytes], None],
    *,
    part: str,
    on_subscribed: Callable[[], None],
    on_lost: Callable[[], None] = lambda: None,
) -> NoReturn:
    """Subscribe to ``channel`` on ``connection`` and call ``on_message`` with each message, until cancelled.

    Subscribes again after an outage, which is reported as one of ``part`` (see :mod:`shared.redis.outage`).
    ``on_subscribed`` is called whenever the subscription is active, and ``on_lost`` whenever it has ended; messages
    published in between are lost.
    """

    def start() -> None:
        outage.store.succeeded(part)
        on_subscribed()

    while True:
        try:
            await subscribe(connection, channel, on_message, on_subscribed=start)
        except (RedisError, OSError) as error:
            outage.store.failed(part, error)
        finally:
            on_lost()
        await asyncio.sleep(_RECONNECT_DELAY)


async def subscribe(
    connection: RawConnection, channel: str, on_message: Callable[[bytes], None], *, on_subscribed: Callable[[], None]
) -> NoReturn:
    """Subscribe to ``channel`` on ``connection`` and call ``on_message`` with each message, until cancelled.

    ``on_subscribed`` is called once, when the subscription is active. Raises what redis-py raises, or :class:`OSError`,
    when the store is unreachable, forbids it, or stops responding; messages may be lost then.
    """
    await connection.open()
    try:
        subscriber = _Subscriber(connection, on_message, on_subscribed)
        connection.watch(subscriber.read)
        connection.send("SUBSCRIBE", channel)
        await subscriber.broken()
    finally:
        connection.close()
    raise AssertionError("a subscription only ends with an error")


class _Subscriber:
    """Delivers messages directly from the event loop's reader callback, which is cheaper than waking a task."""

    def __init__(
        self, connection: RawConnection, on_message: Callable[[bytes], None], on_subscribed: Callable[[], None]
    ) -> None:
        self._connection = connection
        self._on_message = on_message
        self._on_subscribed = on_subscribed
        self._loop = asyncio.get_running_loop()
        self._broken: asyncio.Future[None] = self._loop.create_future()
        self._last_reply = self._loop.time()

    def read(self) -> None:
        """Deliver the messages that have arrived."""
        try:
            for reply in self._connection.replies():
                self._last_reply = self._loop.time()
                if isinstance(reply, RedisError):
                    raise reply
                if reply[0] == b"message":
                    self._on_message(reply[2])
                elif reply[0] == b"subscribe":
                    self._on_subscribed()
        except Exception as error:
            self._connection.unwatch()
            if not self._broken.done():
                self._broken.set_exception(error)

    async def broken(self) -> None:
        """Wait until the subscription breaks, and raise its error. Sends PINGs when idle."""
        while not self._broken.done():
            last_reply = self._last_reply
            idle = self._loop.time() - last_reply
            if idle < PING_AFTER:
                await asyncio.wait([self._broken], timeout=PING_AFTER - idle)
                continue
            self._connection.send("PING")
            deadline = self._loop.time() + PING_TIMEOUT
            while self._last_reply == last_reply and not self._broken.done():
                if self._loop.time() >= deadline:
                    raise ConnectionError("the store does not reply")
                await asyncio.wait([self._broken], timeout=min(PING_AFTER, PING_TIMEOUT))
        self._broken.result()
