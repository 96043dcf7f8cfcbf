"""The relay: routes events from this replica's pub/sub channel to its response streams.

Pub/sub is lossy: a reconnect or a slow reader loses messages. The journal is complete. The relay therefore reads a
job's journal after a gap in the positions, after a reconnect, and after :data:`SILENCE` seconds without an event.
Repeats and stale attempts are dropped by position and attempt.
"""

import asyncio
import logging
import time

from arq.connections import ArqRedis
from redis.exceptions import RedisError

from api.chat.stream import LOST, ChoiceStream, ResponseStream
from api.metrics.histogram import LatencyHistogram
from shared.protocol.errors import Problem, ProblemKind
from shared.protocol.events import Delta, decode_frame, decode_journal
from shared.protocol.queue.texts import queue_keys, script_text
from shared.redis import keys, outage
from shared.redis.client import database_of
from shared.redis.raw_connection import RawConnection
from shared.redis.reconnections import Reconnections
from shared.redis.records import UNREADABLE, report_unreadable
from shared.redis.subscription import stay_subscribed
from shared.runtime.tasks import cancel_all

logger = logging.getLogger(__name__)

SILENCE = 5.0
"""Seconds without an event after which the journal of an open choice is read."""


class Relay:
    """Routes frames on this replica's channel to the open response streams."""

    def __init__(self, redis: ArqRedis, replica: str) -> None:
        self._redis = redis
        self._replica = replica
        self._complete = redis.register_script(script_text("journals", database_of(redis)))
        self._choices: dict[str, ChoiceStream] = {}
        self._recoveries: set[asyncio.Task[None]] = set()
        self._subscribed = asyncio.Event()
        self.frames = 0
        self.token_gaps = LatencyHistogram()
        """Times between two deltas of a choice, by model."""

    @property
    def listening(self) -> bool:
        return self._subscribed.is_set()

    def open(self, stream: ResponseStream) -> None:
        for choice_stream in stream.choices:
            self._choices[choice_stream.job] = choice_stream

    def close(self, stream: ResponseStream) -> None:
        for job in stream.jobs:
            self._choices.pop(job, None)

    async def run(self, connection: RawConnection, reconnections: Reconnections) -> None:
        """Subscribe on ``connection`` until cancelled. Reads the journals of all open streams after a reconnect."""
        await stay_subscribed(
            connection,
            keys.replica_channel(self._replica, connection.database),
            self.route,
            publish=self._redis.publish,
            reconnections=reconnections,
            part="frames",
            on_subscribed=self.on_subscribed,
            on_lost=self._subscribed.clear,
        )

    async def sweep(self) -> None:
        """Read the journals of choices without an event for :data:`SILENCE` seconds, until cancelled."""
        while True:
            await asyncio.sleep(SILENCE / 2)
            limit = time.monotonic() - SILENCE
            self._recover(
                [
                    choice_stream
                    for choice_stream in self._choices.values()
                    if choice_stream.last_event < limit and not choice_stream.ended
                ]
            )

    async def close_all(self) -> None:
        await cancel_all(self._recoveries)

    def route(self, frame: bytes) -> None:
        """Deliver a frame's events to their choices."""
        self.frames += 1
        try:
            entries = decode_frame(frame)
        except UNREADABLE as error:
            report_unreadable(keys.replica_channel(self._replica), error)
            return
        choices = self._choices
        now = time.monotonic()
        gaps = []
        # Choices that run together have their tokens in the same frames: their times are counted together.
        earlier: dict[tuple[str, float], int] = {}
        for entry in entries:
            choice_stream = choices.get(entry.job)
            if choice_stream is not None:
                choice_stream.last_event = now
                if type(entry.event) is Delta:
                    if choice_stream.last_token:
                        last = choice_stream.response.model, choice_stream.last_token
                        earlier[last] = earlier[last] + 1 if last in earlier else 1
                    choice_stream.last_token = now
                if not choice_stream.push(entry.attempt, entry.event):
                    gaps.append(choice_stream)
        for last in earlier:
            self.token_gaps.observe(last[0], now - last[1], earlier[last])
        self._recover(gaps)

    def on_subscribed(self) -> None:
        """Read the journals of all open streams, which may have missed events."""
        self._subscribed.set()
        self._recover(list(self._choices.values()))

    def _recover(self, choices: list[ChoiceStream]) -> None:
        if choices:
            for choice_stream in choices:
                choice_stream.hold()
            task = asyncio.create_task(self._read_journals(choices), name="journal recovery")
            self._recoveries.add(task)
            task.add_done_callback(self._recoveries.discard)

    async def _read_journals(self, choices: list[ChoiceStream]) -> None:
        """Bring ``choices``, which hold back their events, up to date from their journals.

        A job without a payload is lost, and its choice fails.
        """
        try:
            for model in {choice_stream.response.model for choice_stream in choices}:
                await self._complete(queue_keys(model), [choice_stream.job for choice_stream in choices])
            async with self._redis.pipeline(transaction=False) as pipe:
                for choice_stream in choices:
                    pipe.exists(keys.payload(choice_stream.job))
                    pipe.lrange(keys.journal(choice_stream.job), 0, -1)
                replies = await pipe.execute(raise_on_error=False)
        except (RedisError, OSError) as error:
            logger.log(outage.store.level, "journals of %d jobs not read, will retry: %s", len(choices), error)
            for choice_stream in choices:
                choice_stream.resume()
            return
        for choice_stream, exists, journal in zip(choices, replies[::2], replies[1::2], strict=True):
            if isinstance(journal, Exception):
                logger.warning("journal of %s not read: %s", choice_stream.job, journal)
                choice_stream.resume()
            else:
                self._fill(choice_stream, journal)
                is_lost = choice_stream.response.is_queued and not exists and not choice_stream.ended
                if is_lost and choice_stream.job in self._choices:
                    choice_stream.fail(LOST)

    def _fill(self, choice_stream: ChoiceStream, journal: list[bytes]) -> None:
        """Bring ``choice_stream`` up to date from its journal, or fail it when the journal is unreadable."""
        try:
            choice_stream.fill(decode_journal(journal))
        except UNREADABLE as error:
            report_unreadable(keys.journal(choice_stream.job), error)
            choice_stream.abandon(_DAMAGED)


_DAMAGED = Problem(
    kind=ProblemKind.LOST,
    message="The response can't be continued, because its journal in this service's store is damaged. "
    "Please send the request again.",
)
