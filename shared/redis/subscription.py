"""Subscription to one pub/sub channel of Redis or Valkey."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import NoReturn

from redis.exceptions import ConnectionError, RedisError

from shared.redis import outage
from shared.redis.raw_connection import RawConnection
from shared.redis.reconnections import Reconnections

PROBE_AFTER = 5.0
"""Seconds without a message after which one is published to the channel itself. Only messages prove that messages
arrive: a demoted server, on which a subscription may stay, answers PINGs but gets no messages from the master."""

PROBE_TIMEOUT = 5.0
"""Seconds within which a probe must arrive."""

PROBE = b"probe"
"""The message that a process publishes to its own channel."""

_RECONNECT_DELAY = 0.25
"""Seconds between attempts to subscribe while the store is unreachable."""

Publish = Callable[[str, bytes], Awaitable[object]]
"""Publishes a message to a channel over another connection. Raises what redis-py raises."""


async def stay_subscribed(
    connection: RawConnection,
    channel: str,
    on_message: Callable[[bytes], None],
    *,
    publish: Publish,
    reconnections: Reconnections,
    part: str,
    on_subscribed: Callable[[], None],
    on_lost: Callable[[], None] = lambda: None,
) -> NoReturn:
    """Subscribe to ``channel`` on ``connection`` and call ``on_message`` with each message, until cancelled.

    Subscribes again after an outage, which is reported as one of ``part`` (see :mod:`shared.redis.outage`), and at once
    when another connection of the process was lost or is open again. ``on_subscribed`` is called whenever the
    subscription is active, and ``on_lost`` whenever it has ended; messages published in between are lost.
    """

    def start() -> None:
        outage.store.succeeded(part)
        on_subscribed()

    while True:
        try:
            await subscribe(
                connection, channel, on_message, publish=publish, reconnections=reconnections, on_subscribed=start
            )
        except _Renewed:
            continue
        except (RedisError, OSError) as error:
            outage.store.failed(part, error)
        finally:
            on_lost()
        await asyncio.sleep(_RECONNECT_DELAY)


class _Renewed(ConnectionError):
    """Another connection of the process was lost."""


async def subscribe(
    connection: RawConnection,
    channel: str,
    on_message: Callable[[bytes], None],
    *,
    publish: Publish,
    reconnections: Reconnections,
    on_subscribed: Callable[[], None],
) -> NoReturn:
    """Subscribe to ``channel`` on ``connection`` and call ``on_message`` with each message, until cancelled.

    ``on_subscribed`` is called once, when the subscription is active. Raises what redis-py raises, or :class:`OSError`,
    when the store is unreachable, forbids it, stops responding, or delivers no messages; messages may be lost then.
    """

    async def probe() -> None:
        with suppress(RedisError, OSError):  # No probe arrives then.
            await publish(channel, PROBE)

    subscriber = _Subscriber(connection, on_message, on_subscribed)
    reconnections.add_subscription(subscriber.renew)
    try:
        await connection.open()
        connection.watch(subscriber.read)
        connection.send("SUBSCRIBE", channel)
        await subscriber.broken(probe)
    finally:
        reconnections.remove_subscription(subscriber.renew)
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
        self._last_message = self._loop.time()

    def read(self) -> None:
        """Deliver the messages that have arrived."""
        try:
            for reply in self._connection.replies():
                self._last_message = self._loop.time()
                if isinstance(reply, RedisError):
                    raise reply
                if reply[0] == b"message" and reply[2] != PROBE:
                    self._on_message(reply[2])
                elif reply[0] == b"subscribe":
                    self._on_subscribed()
        except Exception as error:
            self._connection.unwatch()
            self._break(error)

    def renew(self) -> None:
        """End the subscription, because another connection of the process was lost."""
        self._break(_Renewed("another connection to the store was lost"))

    def _break(self, error: Exception) -> None:
        if not self._broken.done():
            self._broken.set_exception(error)

    async def broken(self, probe: Callable[[], Coroutine[None, None, None]]) -> None:
        """Wait until the subscription breaks, and raise its error. Publishes a probe when idle."""
        while not self._broken.done():
            last_message = self._last_message
            idle = self._loop.time() - last_message
            if idle < PROBE_AFTER:
                await asyncio.wait([self._broken], timeout=PROBE_AFTER - idle)
                continue
            probing = asyncio.create_task(probe(), name="probe of a subscription")
            await asyncio.wait([self._broken], timeout=PROBE_TIMEOUT)
            probing.cancel()
            if self._last_message == last_message and not self._broken.done():
                raise ConnectionError("messages that this process publishes to itself do not arrive")
        self._broken.result()
