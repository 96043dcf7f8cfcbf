"""Publishes the events of each engine step to the store in one script call.

At most one call is outstanding. Events that arrive meanwhile are buffered for the next call, so a slow store gets
larger frames, not more calls. The reply is read when there are more events to send: the engine's next step wakes this
process anyway, and waking it for the reply as well would double the cost.
"""

import asyncio
import logging
import math
import time
from collections.abc import Sequence

from redis.asyncio import Redis
from redis.exceptions import ConnectionError, RedisError, TimeoutError

from shared.protocol.events import Event, encode_event
from shared.protocol.queue import Emitter, Lease, StaleClaims
from shared.redis import keys, outage
from shared.redis.client import READ_TIMEOUT
from shared.redis.raw_connection import RawConnection
from shared.redis.reconnections import Reconnections
from worker.engine.handle import CurrentEngine
from worker.jobs.active_jobs import ActiveJobs
from worker.jobs.attempt import Attempt
from worker.jobs.attempt_recorder import usage_of

logger = logging.getLogger(__name__)

ORPHAN_GRACE = 5.0
"""Seconds without a subscriber and a registry record after which an API replica's jobs are orphaned."""

_RETRY_DELAYS = (0.05, 0.1, 0.2, 0.4)
"""Seconds between attempts to reconnect; the last one repeats."""

_REPLY_CHECK = 0.1
"""Seconds after which the reply is read even without more events to send."""


class Publisher:
    """Publishes events to API replicas and appends them to the journals, in order per job.

    A call that fails because of the store's state (unreachable, read-only, busy, out of memory, ...) is repeated until
    it succeeds.
    """

    def __init__(
        self,
        emitter: Emitter,
        connection: RawConnection,
        jobs: ActiveJobs,
        engine: CurrentEngine,
        reconnections: Reconnections,
    ) -> None:
        """``connection`` is used by the publisher only. Those of ``jobs`` are stopped whose lease this worker has lost,
        or whose API replica has gone.
        """
        self._emitter = emitter
        self._connection = connection
        self._jobs = jobs
        self._engine = engine
        self._reconnections = reconnections
        self._pending: dict[Lease, list[bytes]] = {}
        self._ended: set[Lease] = set()
        """Jobs whose terminal event is pending."""
        self._flush_due = False
        self._load_due = False
        """Whether the next call must report the load even if it ends no job."""
        self._sent: dict[Lease, list[bytes]] = {}
        """Events sent but not confirmed by the store. They are sent again after a reconnect."""
        self._sent_ended: set[Lease] = set()
        """Jobs whose terminal event is in ``_sent``."""
        self._replicas: Sequence[str] = ()
        """Replicas addressed by ``_sent``, in the order of the reply's receiver counts."""
        self._sent_at = 0.0
        self._reply_timer: asyncio.TimerHandle | None = None
        self._disconnected = asyncio.Event()
        self._failures = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._unheard: dict[str, float] = {}
        """The replicas whose last frame nobody received, and since when (monotonic) they are not registered."""

    def add(self, lease: Lease, event: bytes) -> None:
        """Buffer an encoded event for the next :meth:`flush`. Hot path: called once per token."""
        self._pending.setdefault(lease, []).append(event)

    def end(self, attempt: Attempt, event: Event) -> None:
        """End the job of an attempt with its terminal event, unless it has ended. All jobs end here.

        The event is sent by the next :meth:`flush`, at the latest in this iteration of the event loop.
        """
        if attempt.terminal_event is not None:
            return
        attempt.terminal_event = event
        attempt.ended.set()
        self.add(attempt.lease, encode_event(event))
        attempt.lease.usage = usage_of(attempt).encode()
        self._ended.add(attempt.lease)
        self._idle.clear()
        if not self._flush_due:
            self._flush_due = True
            asyncio.get_running_loop().call_soon(self._flush_if_due)

    def drop(self, lease: Lease) -> None:
        """Discard the pending events of a job whose lease this worker lost."""
        self._pending.pop(lease, None)
        self._ended.discard(lease)

    def flush(self) -> None:
        """Send all pending events, or, while a call is outstanding, when its reply arrives."""
        self._flush_due = False
        if not self._connection.is_open or (self._sent and not self._confirmed()):
            self._idle.clear()
            return
        if self._pending:
            self._sent, self._sent_ended, self._pending, self._ended = self._pending, self._ended, {}, set()
            self._send()
        else:
            self._idle.set()

    async def flushed(self) -> None:
        """Wait until all events are sent and confirmed."""
        self.flush()
        if self._sent and self._connection.is_open:
            self._connection.watch(self.flush)
        await self._idle.wait()

    async def run(self) -> None:
        """Keep the connection open until cancelled. Events are buffered while the store is unreachable."""
        try:
            while True:
                await self._connect()
                if self._sent:
                    self._load_due = True  # the report of a job's end may have been lost with the connection
                    self._send()
                else:
                    self.flush()
                if not self._sent:
                    self._on_success()
                await self._disconnected.wait()
        finally:
            if self._reply_timer is not None:
                self._reply_timer.cancel()
            self._connection.close()

    async def _connect(self) -> None:
        """Open the connection, retrying until it succeeds."""
        self._disconnected.clear()
        while True:
            if self._failures:
                await asyncio.sleep(_RETRY_DELAYS[min(self._failures, len(_RETRY_DELAYS)) - 1])
            try:
                await self._connection.open(self._emitter.load_command)
                if self._failures:
                    self._reconnections.opened()
                return
            except (RedisError, OSError) as error:
                self._failures += 1
                outage.store.failed("publishing", error)

    def _flush_if_due(self) -> None:
        if self._flush_due:
            self.flush()

    def _send(self) -> None:
        """Send ``_sent`` as one script call."""
        self._idle.clear()
        ended = self._sent_ended
        load = len(self._jobs) / self._engine.slots if ended or self._load_due else None
        self._load_due = False
        command, self._replicas = self._emitter.command(self._sent, ended=ended, load=load)
        self._sent_at = time.monotonic()
        try:
            self._connection.send(*command)
            if self._pending:
                self._connection.watch(self.flush)
        except RedisError as error:
            self._disconnect(error)
            return
        if self._reply_timer is None:
            self._reply_timer = asyncio.get_running_loop().call_later(_REPLY_CHECK, self._check_reply)

    def _confirmed(self) -> bool:
        """Read the reply to ``_sent``. Returns whether it is confirmed; if not, the reply triggers :meth:`flush`."""
        try:
            replies = self._connection.replies()
            if not replies:
                self._connection.watch(self.flush)
                return False
            self._connection.unwatch()
            receivers = self._emitter.parse_reply(replies[0])
        except StaleClaims as stale:
            lost = [lease for lease in self._sent if (lease.job, lease.attempt) in stale.claims]
            for lease in lost:
                del self._sent[lease]
                self._sent_ended.discard(lease)
                self.drop(lease)
            self._jobs.abandon(lost)
            self._load_due = True
            if self._sent:
                self._send()
            return not self._sent
        except RedisError as error:
            self._disconnect(error)
            return False
        self._sent = {}
        self._on_success()
        for replica, count in zip(self._replicas, receivers, strict=True):
            if count:
                self._unheard.pop(replica, None)
            else:
                self._unheard.setdefault(replica, math.inf)
        return True

    def _check_reply(self) -> None:
        """Read a reply that no :meth:`flush` has read since."""
        self._reply_timer = None
        if not self._sent or not self._connection.is_open:
            return
        waited = time.monotonic() - self._sent_at
        if waited > READ_TIMEOUT:
            self._disconnect(TimeoutError("the store does not reply"))
            return
        if waited > _REPLY_CHECK / 2:
            self.flush()
        if self._sent:
            self._reply_timer = asyncio.get_running_loop().call_later(_REPLY_CHECK, self._check_reply)

    def _disconnect(self, error: Exception) -> None:
        """Close the connection and have :meth:`run` reconnect."""
        self._connection.close()
        self._reconnections.lost()
        self._failures += 1
        if not isinstance(error, ConnectionError):
            outage.store.failed("publishing", error)
        # An idle connection reveals an outage only now. If the outage lasts, connecting fails.
        self._disconnected.set()

    def _on_success(self) -> None:
        if self._failures:
            self._failures = 0
            outage.store.succeeded("publishing")

    async def cancel_orphans(self, redis: Redis) -> None:
        """Cancel the jobs of API replicas that have been without a subscriber and a registry record for long.

        Is called at each heartbeat. Raises what redis-py raises when the store is unreachable.
        """
        for replica in list(self._unheard):
            registered, now = await redis.exists(keys.replica(replica)), time.monotonic()
            if registered or replica not in self._unheard:
                self._unheard.pop(replica, None)  # Its subscription may be about to come back.
            elif now - min(now, self._unheard[replica]) >= ORPHAN_GRACE:
                del self._unheard[replica]
                self._jobs.cancel_replica(replica)
            else:
                self._unheard[replica] = min(now, self._unheard[replica])
