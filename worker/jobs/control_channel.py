"""The worker's pub/sub channel: wake-ups, cancellations, and operators' commands to drain and to resume."""

import logging
from collections.abc import Callable

from shared.redis import keys
from shared.redis.raw_connection import RawConnection
from shared.redis.subscription import stay_subscribed

logger = logging.getLogger(__name__)


class ControlChannel:
    """Subscribes to the worker's channel and calls a callback for each message."""

    def __init__(
        self,
        connection: RawConnection,
        worker: str,
        *,
        on_wake: Callable[[], None],
        on_cancel: Callable[[str], None],
        on_drain: Callable[[], None],
        on_resume: Callable[[], None],
    ) -> None:
        """``connection`` is used for this subscription only. ``worker`` is this worker's id.

        ``on_wake`` is called when jobs wait. ``on_cancel`` is called with the id of a cancelled job.
        """
        self._connection = connection
        self._worker = worker
        self._on_wake = on_wake
        self._on_cancel = on_cancel
        self._commands = {b"wake": on_wake, b"drain": on_drain, b"resume": on_resume}

    async def run(self) -> None:
        """Handle messages until cancelled. After an outage, resubscribe and wake the consumer."""
        await stay_subscribed(
            self._connection,
            keys.worker_channel(self._worker),
            self._on_message,
            part="wake-ups",
            on_subscribed=self._on_wake,
        )

    def _on_message(self, message: bytes) -> None:
        word, _, rest = message.partition(b" ")
        if word == b"cancel":
            self._on_cancel(rest.decode(errors="replace"))
        elif word in self._commands:
            self._commands[word]()  # older replicas send a job's payload with "wake"
        else:
            logger.warning("unknown control message: %r", message[:80])
