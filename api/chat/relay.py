"""The relay, which routes events from this replica's pub/sub channel to its response streams, and the table of these.

Pub/sub is lossy: a reconnect or a slow reader loses messages. The journal is complete. The relay therefore reads a
job's journal after a gap in the positions, after a reconnect, and after :data:`SILENCE` seconds without an event.
Repeats and stale attempts are dropped by position and attempt.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence, Sized

from arq.connections import ArqRedis
from redis.exceptions import RedisError

from api.chat.queues import JobQueues
from api.chat.stream import LOST, ChoiceStream, ResponseStream
from api.metrics.histogram import LatencyHistogram
from api.models.directory import RETRY_NO_WORKER, Directory
from shared.protocol.errors import Problem, ProblemKind
from shared.protocol.events import Delta, decode_frame, decode_journal
from shared.redis import keys, outage
from shared.redis.outage import when_reachable
from shared.redis.raw_connection import RawConnection
from shared.redis.reconnections import Reconnections
from shared.redis.records import UNREADABLE, report_unreadable
from shared.redis.subscription import stay_subscribed
from shared.runtime.settings import ApiSettings
from shared.runtime.tasks import BackgroundTasks, cancel_all
from shared.runtime.ticks import next_tick

logger = logging.getLogger(__name__)

SILENCE = 5.0
"""Seconds without an event after which the journal of an open choice is read."""


class Relay:
    """Routes frames on this replica's channel to the open response streams."""

    def __init__(self, redis: ArqRedis, replica: str) -> None:
        self._redis = redis
        self._replica = replica
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


_RETRY = 1.0
"""Seconds between two attempts while the store is unreachable."""

_POLL = 0.05
"""Interval in seconds at which the end of all requests is awaited."""

_TIMED_OUT = Problem(kind=ProblemKind.TIMEOUT, message="The request exceeded the maximum duration of requests.")

_KEY_ENDED = Problem(
    kind=ProblemKind.UNAUTHORIZED,
    message="The API key of this request has expired or was revoked, so the request was ended.",
)

_SHUT_DOWN = Problem(
    kind=ProblemKind.SHUTTING_DOWN, message="This server was shut down before the response was complete."
)


class OpenStreams:
    """The table of open response streams: the only place that opens, fails and closes them.

    A stream ends when its jobs have ended. Before that, it fails when its wait or duration exceeds a limit, when its
    model has lost its last worker, when its key ends, and when the replica shuts down. Whoever has opened a stream
    closes it, which cancels the jobs that are unfinished.
    """

    def __init__(
        self, relay: Relay, queues: JobQueues, directory: Directory, tasks: BackgroundTasks, settings: ApiSettings
    ) -> None:
        """``tasks`` are those that cancel jobs."""
        self._relay = relay
        self._queues = queues
        self._directory = directory
        self._tasks = tasks
        self._settings = settings
        # One timer per stream at a time, because there are thousands of streams.
        self._timers: dict[ResponseStream, asyncio.TimerHandle] = {}
        self.draining = False
        """Whether the replica ends: it is not ready, and begins nothing on its own. It still serves what it gets."""
        self.drained = False
        """Whether new requests are refused."""

    def __len__(self) -> int:
        return len(self._timers)

    def __iter__(self) -> Iterator[ResponseStream]:
        return iter(tuple(self._timers))

    def open(
        self,
        jobs: Sequence[str],
        model: str,
        *,
        queue_timeout: float | None = None,
        stored: bool = False,
        tenant: str = "",
    ) -> ResponseStream:
        """Return the response stream of ``jobs``, which are about to be queued. The caller must :meth:`close` it.

        ``queue_timeout`` is the maximum wait in seconds; by default it is the setting's. ``stored`` is whether the
        response has a record, ``tenant`` the id of the API key.
        """
        stream = ResponseStream(jobs, model, cancel=self.cancel, queued=False, stored=stored, tenant=tenant)
        self._relay.open(stream)
        loop = asyncio.get_running_loop()
        wait, duration = queue_timeout or self._settings.queue_timeout, self._settings.request_timeout
        if wait < duration:
            self._timers[stream] = loop.call_later(wait, self._end_wait, stream, duration - wait)
        else:
            self._timers[stream] = loop.call_later(duration, stream.fail, _TIMED_OUT)
        return stream

    def close(self, stream: ResponseStream) -> asyncio.Task[frozenset[str]] | None:
        """Stop relaying to ``stream`` and cancel its unfinished jobs, unless they go on without this replica.

        Returns the task that cancels them, if any are cancelled.
        """
        self._relay.close(stream)
        timer = self._timers.pop(stream, None)
        if timer is not None:
            timer.cancel()
        return self.cancel(stream.model, stream.jobs) if stream.has_unfinished_jobs else None

    def cancel(self, model: str, jobs: Sequence[str]) -> asyncio.Task[frozenset[str]]:
        """Cancel the unfinished ``jobs`` in the background; return the task.

        Retries while the store is unreachable: otherwise workers would continue to compute.
        """
        queue = self._queues.of(model)
        return self._tasks.run(when_reachable(lambda: queue.cancel(jobs), _RETRY), "cancel jobs")

    def fail_without_key(self, is_valid: Callable[[str], bool]) -> None:
        """Fail the streams whose API key was revoked or has expired, those of batches and in the background too.

        ``is_valid`` returns whether a tenant's key is valid. Call it after each refresh of the keys.
        """
        ended = {tenant for tenant in {stream.tenant for stream in self} if not is_valid(tenant)}
        for stream in self:
            if stream.tenant in ended:
                stream.fail(_KEY_ENDED)

    async def watch_workers(self) -> None:
        """Fail the streams whose model has had no worker for longer than ``worker_grace``, until cancelled.

        While the store is unreachable, absent workers mean nothing.
        """
        while True:
            await asyncio.sleep(next_tick(self._settings.lease / 3))
            if self._directory.reachable:
                self._fail_without_worker()

    async def drain(self, grace: float, connections: Sized = ()) -> None:
        """Wait up to ``grace`` seconds until no stream is open and ``connections`` is empty, then fail the remaining
        streams.

        The jobs of stored responses go on. Their clients get the error as well.
        """
        self.draining = True
        try:
            async with asyncio.timeout(grace):
                while self._timers or connections:  # noqa: ASYNC110 - of two owners, once in a process
                    await asyncio.sleep(_POLL)
        except TimeoutError:
            logger.warning("drain timed out; %d requests are aborted", len(self))
        self.drained = True
        for stream in self:
            stream.leave(_SHUT_DOWN)

    def _end_wait(self, stream: ResponseStream, rest: float) -> None:
        """Fail ``stream`` if no job was claimed, otherwise when it is not finished in ``rest`` seconds."""
        self._timers[stream] = asyncio.get_running_loop().call_later(rest, stream.fail, _TIMED_OUT)
        if all(choice_stream.attempt == 0 for choice_stream in stream.choices):
            self._tasks.run(self._end_wait_unless_claimed(stream), "end of a wait")

    async def _end_wait_unless_claimed(self, stream: ResponseStream) -> None:
        """Fail ``stream`` if no job was claimed. Retries while the store is unreachable and ``stream`` is open."""

        async def is_claimed() -> bool:
            return stream not in self._timers or await self._queues.of(stream.model).any_claimed(stream.jobs)

        if not await when_reachable(is_claimed, _RETRY):
            _fail_for_now(stream, ProblemKind.QUEUE_TIMEOUT, self._directory.why_waited(stream.model))

    def _fail_without_worker(self) -> None:
        models = {stream.model for stream in self}
        grace = self._settings.worker_grace
        orphaned = {model for model in models if self._directory.without_worker_for(model) > grace}
        for stream in self:
            if stream.model in orphaned:
                _fail_for_now(stream, ProblemKind.NO_WORKER, self._directory.why_without_worker(stream.model))


def _fail_for_now(stream: ResponseStream, kind: ProblemKind, message: str) -> None:
    """Fail ``stream`` with a problem that may be over soon."""
    stream.fail(Problem(kind=kind, message=message, retry_after=RETRY_NO_WORKER))
