"""The worker's pub/sub channel: wake-ups, cancellations, and operators' commands to drain and to resume."""

import logging

from shared.redis import keys
from shared.redis.raw_connection import RawConnection
from shared.redis.subscription import stay_subscribed
from worker.jobs.active_jobs import ActiveJobs
from worker.jobs.consumer import JobConsumer
from worker.jobs.draining import Draining

logger = logging.getLogger(__name__)


class ControlChannel:
    """Subscribes to the worker's channel, and passes each message to what it concerns."""

    def __init__(
        self,
        connection: RawConnection,
        worker: str,
        consumer: JobConsumer,
        jobs: ActiveJobs,
        draining: Draining,
    ) -> None:
        """``connection`` is used for this subscription only. ``worker`` is this worker's id."""
        self._connection = connection
        self._worker = worker
        self._jobs = jobs
        self._commands = {
            b"wake": consumer.wake,
            b"drain": draining.start,
            b"retire": draining.retire,
            b"resume": draining.resume,
        }

    async def run(self) -> None:
        """Handle messages until cancelled. After an outage, resubscribe and wake the consumer."""
        await stay_subscribed(
            self._connection,
            keys.worker_channel(self._worker),
            self._on_message,
            part="wake-ups",
            on_subscribed=self._commands[b"wake"],
        )

    def _on_message(self, message: bytes) -> None:
        word, _, rest = message.partition(b" ")
        if word == b"cancel":
            self._jobs.cancel(rest.decode(errors="replace"))
        elif word in self._commands:
            self._commands[word]()
        else:
            logger.warning("unknown control message: %r", message[:80])
