"""The worker's pub/sub channel: wake-ups, cancellations, and operators' commands to drain and to resume."""

import logging
from typing import NoReturn

from shared.redis import keys
from shared.redis.raw_connection import RawConnection
from shared.redis.reconnections import Reconnections
from shared.redis.subscription import Publish, stay_subscribed
from worker.jobs.active_jobs import ActiveJobs
from worker.jobs.consumer import JobConsumer
from worker.jobs.draining import Draining

logger = logging.getLogger(__name__)


async def run_control_channel(
    connection: RawConnection,
    worker: str,
    consumer: JobConsumer,
    jobs: ActiveJobs,
    draining: Draining,
    *,
    publish: Publish,
    reconnections: Reconnections,
) -> NoReturn:
    """Pass each message to ``worker`` to what it concerns, until cancelled. An outage ends with a wake-up.

    ``connection`` is used for this subscription only.
    """
    commands = {
        b"wake": consumer.wake,
        b"drain": draining.start,
        b"retire": draining.retire,
        b"resume": draining.resume,
    }

    def on_message(message: bytes) -> None:
        word, _, rest = message.partition(b" ")
        if word == b"cancel":
            jobs.cancel(rest.decode(errors="replace"))
        elif word in commands:
            commands[word]()
        else:
            logger.warning("unknown control message: %r", message[:80])

    channel = keys.worker_channel(worker, connection.database)
    await stay_subscribed(
        connection,
        channel,
        on_message,
        publish=publish,
        reconnections=reconnections,
        part="wake-ups",
        on_subscribed=consumer.wake,
    )
