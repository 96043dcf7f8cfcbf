"""The worker's pub/sub channel: wake-up and cancel messages."""

import logging

from shared.redis import keys
from shared.redis.raw_connection import RawConnection
from shared.redis.subscription import stay_subscribed
from worker.consumer import ChatWorker
from worker.service import ModelService

logger = logging.getLogger(__name__)


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
        await stay_subscribed(
            self._connection,
            keys.worker_channel(self._worker),
            self._on_message,
            part="wake-ups",
            on_subscribed=self._consumer.wake,
        )

    def _on_message(self, message: bytes) -> None:
        word, _, rest = message.partition(b" ")
        if word == b"wake":
            self._consumer.wake(rest)
        elif word == b"cancel":
            self._service.cancel(rest.decode(errors="replace"))
        else:
            logger.warning("unknown control message: %r", message[:80])
