"""Queue events: comments in a stream that tell a waiting client its place in the queue, and, in the stream of a
background response, that another attempt continues it.

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
from shared.protocol.events import Started
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
    """Seconds until a worker claims it, or until its model is loaded; ``None`` if neither is known."""


class AttemptEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Another attempt at a request has started, and continues its text."""

    number: int
    cause: str
    """Why there is another attempt (:data:`shared.protocol.events.MoveCause`)."""


def another_attempt(started: Started) -> bytes:
    """Return a comment on an attempt after the first."""
    return _comment("attempt", AttemptEvent(number=started.attempt, cause=started.cause))


def _comment(kind: str, event: msgspec.Struct) -> bytes:
    return b": " + msgspec.json.encode({kind: event}) + b"\n\n"


class QueueEvents:
    """Reads the places of this replica's requests."""

    def __init__(self, queues: JobQueues, directory: Directory) -> None:
        self._queues = queues
        self._directory = directory

    async def until_started(self, stream: ResponseStream) -> AsyncIterator[bytes]:
        """Yield comments every :data:`INTERVAL` seconds until the first event of ``stream`` has arrived."""
        while True:
            comment = await self.place(stream.model, stream.jobs[0])
            if comment:
                yield comment
            try:
                async with asyncio.timeout(INTERVAL):
                    await stream.first()
            except TimeoutError:
                continue
            return

    async def place(self, model: str, job: str) -> bytes:
        """Return a comment with the place of a job; nothing if it can't be read now."""
        try:
            ahead = await self._queues.of(model).place(job)
        except (RedisError, OSError) as error:
            logger.log(outage.store.level, "place of job %s not read: %s", job, error)
            return b""
        return _comment("queue", QueueEvent(request=job, ahead=ahead, expected_wait=self._wait(model, ahead)))

    def _wait(self, model: str, ahead: int | None) -> float | None:
        if ahead is None:
            return 0.0
        if rate := self._directory.service_rate(model):
            return round((ahead + 1) / rate, 3)
        declared = self._directory.fleet.catalogue.get(model)
        return declared.ready_in if declared is not None else None
