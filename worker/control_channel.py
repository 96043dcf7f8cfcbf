"""The worker's pub/sub channel: wake-up and cancel messages."""

import asyncio
import logging

from redis.exceptions import RedisError

from shared.redis import keys, outage
from shared.redis.raw_connection import RawConnection
from shared.redis.subscription import subscribe
from worker.consumer import ChatWorker
from worker.service import ModelService

logger = logging.getLogger(__name__)

_RECONNECT_DELAY = 0.5
"""Seconds between attempts to subscribe while the store is unreachable."""


class ControlChannel:
    """Subscribes to the worker's channel and passes wake-ups to the consumer, cancellations to the service."""

    def __init__(self, connection: RawConnection, worker: str, service: ModelService, consumer: ChatWorker) -> None:
        """``connection`` is used for this subscription only. ``worker`` is this worker's id."""
        self._connection = connection
        self._worker = worker
        self._service = service
        self._consumer = consumer

    async def run(self) -> None:
        """Handle messages until cancelled. After an outage, resubscribes and looks at the queue."""
        while True:
            try:
                await subscribe(
                    self._connection,
                    keys.worker_channel(self._worker),
                    self._on_message,
                    on_subscribed=self._on_subscribed,
                )
            except (RedisError, OSError) as error:
                outage.store.failed("wake-ups", error)
                await asyncio.sleep(_RECONNECT_DELAY)

    def _on_subscribed(self) -> None:
        outage.store.served("wake-ups")
        self._consumer.wake()

    def _on_message(self, message: bytes) -> None:
        word, _, rest = message.partition(b" ")
        if word == b"wake":
            self._consumer.wake(rest)
        elif word == b"cancel":
            self._service.cancel(rest.decode(errors="replace"))
        else:
            logger.warning("unknown control message: %r", message[:80])
