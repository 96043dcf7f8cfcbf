"""Queue events: comments in a stream that tell a waiting client its place in the queue.

A request opts in with the header ``x-queue-events: true``. Its response then starts at once instead of with the first
event from a worker, so a later failure is reported inside the stream. Comments are part of the format of server-sent
events, and clients ignore those that they do not know.
"""

import asyncio
import logging
from collections.abc import AsyncIterator

import msgspec
from redis.exceptions import RedisError

from api.chat.queues import JobQueues
from api.chat.stream import ResponseStream
from api.models.directory import Directory
from shared.redis import outage

logger = logging.getLogger(__name__)

HEADER = "x-queue-events"

INTERVAL = 0.5
"""Seconds between two events."""


class QueueEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The place of a request in the queue. For several choices, that of the first."""

    request: str
    """Id of the job, as in the log and in the fleet view."""
    ahead: int | None
    """Number of jobs that go first; ``None`` when a worker has claimed it and computes its prompt."""
    expected_wait: float | None
    """Seconds until a worker claims it; ``None`` if the service rate is unknown."""


class QueueEvents:
    """Reads the places of this replica's requests."""

    def __init__(self, queues: JobQueues, directory: Directory) -> None:
        self._queues = queues
        self._directory = directory

    async def until_started(self, stream: ResponseStream) -> AsyncIterator[bytes]:
        """Yield a comment every :data:`INTERVAL` seconds until the first event of ``stream`` has arrived."""
        job = stream.jobs[0]
        while True:
            try:
                ahead = await self._queues.of(stream.model).place(job)
            except (RedisError, OSError) as error:
                logger.log(outage.store.level, "place of job %s not read: %s", job, error)
            else:
                event = QueueEvent(request=job, ahead=ahead, expected_wait=self._wait(stream.model, ahead))
                yield b": " + msgspec.json.encode({"queue": event}) + b"\n\n"
            try:
                async with asyncio.timeout(INTERVAL):
                    await stream.first()
            except TimeoutError:
                continue
            return

    def _wait(self, model: str, ahead: int | None) -> float | None:
        if ahead is None:
            return 0.0
        rate = self._directory.service_rate(model)
        return round((ahead + 1) / rate, 3) if rate else None
