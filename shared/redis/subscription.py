"""Hearing one channel of Redis or Valkey for as long as the connection holds."""

import asyncio
from collections.abc import Callable
from typing import NoReturn

from redis.exceptions import ConnectionError, RedisError

from shared.redis.raw_connection import RawConnection

PING_AFTER = 5.0
"""Seconds of silence after which the store is asked whether it is still there; as many again may pass until it
answers. Keep-alive finds a host that has gone; this finds a store that hangs."""


async def subscribe(
    line: RawConnection, channel: str, on_message: Callable[[bytes], None], *, on_subscribed: Callable[[], None]
) -> NoReturn:
    """Subscribe to ``channel`` on ``line``, and call ``on_message`` with each message, until cancelled.

    ``on_subscribed`` is called once, when nothing can be missed any more. Raises what redis-py raises, or
    :class:`OSError`, when the store can't be reached, forbids it, or stops answering; messages may be lost then.
    """
    await line.open()
    try:
        ear = _Subscriber(line, on_message, on_subscribed)
        line.watch(ear.take)
        line.send("SUBSCRIBE", channel)
        await ear.broken()
    finally:
        line.close()
    raise AssertionError("a line does not end without an error")


class _Subscriber:
    """Hands on what comes, within the event loop's own call: a task that is woken for each message costs more than most
    messages do."""

    def __init__(
        self, line: RawConnection, on_message: Callable[[bytes], None], on_subscribed: Callable[[], None]
    ) -> None:
        self._connection = line
        self._on_message = on_message
        self._on_subscribed = on_subscribed
        self._loop = asyncio.get_running_loop()
        self._broken: asyncio.Future[None] = self._loop.create_future()
        self._heard = self._loop.time()

    def take(self) -> None:
        """Hand on what has come."""
        try:
            for answer in self._connection.answers():
                self._heard = self._loop.time()
                if isinstance(answer, RedisError):
                    raise answer
                if answer[0] == b"message":
                    self._on_message(answer[2])
                elif answer[0] == b"subscribe":
                    self._on_subscribed()
        except Exception as error:
            self._connection.unwatch()
            if not self._broken.done():
                self._broken.set_exception(error)

    async def broken(self) -> None:
        """Wait for the end, which is always an error; ask the store in long silences."""
        while not self._broken.done():
            heard = self._heard
            silence = self._loop.time() - heard
            if silence < PING_AFTER:
                await asyncio.wait([self._broken], timeout=PING_AFTER - silence)
                continue
            self._connection.send("PING")
            await asyncio.wait([self._broken], timeout=PING_AFTER)
            if self._heard == heard and not self._broken.done():
                raise ConnectionError("the store does not answer")
        self._broken.result()
