"""Publishing: what the jobs of a step have to say goes to Redis in one script call.

While an answer is outstanding, what comes meanwhile gathers, and goes with the next call; so a slow Redis makes frames
larger, not calls more frequent. An answer is looked for when there is more to say: the engine's next step wakes this
process anyway, and a second time each step would cost as much again.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from redis.exceptions import ConnectionError, RedisError, TimeoutError

from shared.protocol.events import Event, encode_event
from shared.protocol.queue import Emitter, Lease, StaleClaims
from shared.redis import outage
from shared.redis.client import READ_TIMEOUT
from shared.redis.raw_connection import RawConnection

logger = logging.getLogger(__name__)

ORPHAN_GRACE = 5.0
"""Seconds for which an API replica may not listen before its jobs count as orphaned."""

_RETRY_DELAYS = (0.05, 0.1, 0.2, 0.4)

_LOOK = 0.1
"""Seconds after which an answer is looked for though there is no more to say."""


class Publisher:
    """Sends events to API replicas and into the journals, in order for each job."""

    def __init__(
        self,
        emitter: Emitter,
        line: RawConnection,
        *,
        load: Callable[[], float],
        on_stale: Callable[[frozenset[str]], None],
        on_orphaned: Callable[[str], None],
    ) -> None:
        """``line`` is the publisher's own. ``load`` tells the share of slots in use; ``on_stale`` is called with jobs
        that other workers hold now, ``on_orphaned`` with the id of an API replica that has gone."""
        self._emitter = emitter
        self._connection = line
        self._load = load
        self._on_stale = on_stale
        self._on_orphaned = on_orphaned
        self._pending: dict[Lease, list[bytes]] = {}
        self._ended: set[Lease] = set()
        """The jobs that end with what waits."""
        self._flush_due = False
        self._load_due = False
        """Whether the load has changed without a job that ends with what waits."""
        self._sent: dict[Lease, list[bytes]] = {}
        """What the store has not confirmed yet. It is sent again when the line breaks."""
        self._sent_ended: set[Lease] = set()
        """The jobs that end with that."""
        self._replicas: tuple[str, ...] = ()
        """To whom it goes, in the order of the answer."""
        self._sent_at = 0.0
        self._look: asyncio.TimerHandle | None = None
        self._broken = asyncio.Event()
        self._failures = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._deaf_since: dict[str, float] = {}

    def add(self, lease: Lease, event: bytes) -> None:
        """Have an encoded event published with the next :meth:`flush`. The hot path: runs once a token."""
        events = self._pending.get(lease)
        if events is None:
            self._pending[lease] = [event]
        else:
            events.append(event)

    def end(self, lease: Lease, event: Event) -> None:
        """Have the last event of a job published with the next :meth:`flush`."""
        self.add(lease, encode_event(event))
        self._ended.add(lease)

    def end_soon(self, lease: Lease, event: Event) -> None:
        """Have the last event of a job published within this round of the event loop."""
        self.end(lease, event)
        self._flush_soon()

    def discard(self, lease: Lease) -> None:
        """End the job in silence: its client has gone."""
        self._pending[lease] = []
        self._ended.add(lease)
        self._flush_soon()

    def drop(self, lease: Lease) -> None:
        """Forget what waits to be said about a job: it is no longer ours."""
        self._pending.pop(lease, None)
        self._ended.discard(lease)

    def flush(self) -> None:
        """Send all that waits, unless the store still owes an answer: it then goes as soon as that is here."""
        self._flush_due = False
        if not self._connection.is_open or (self._sent and not self._confirmed()):
            self._idle.clear()
            return
        if self._pending:
            self._sent, self._pending = self._pending, {}
            self._sent_ended, self._ended = self._ended, set()
            self._send()
        else:
            self._idle.set()

    async def flushed(self) -> None:
        """Wait until all has been sent, and confirmed."""
        self.flush()
        if self._sent and self._connection.is_open:
            self._connection.watch(self.flush)
        await self._idle.wait()

    async def run(self) -> None:
        """Keep the line open until cancelled. Redis' failures are waited out; what was said meanwhile is kept."""
        try:
            while True:
                await self._connect()
                if self._sent:
                    self._load_due = True  # or it may have been lost with the line that a job ended
                    self._send()
                else:
                    self.flush()
                if not self._sent:
                    self._works()
                await self._broken.wait()
        finally:
            if self._look is not None:
                self._look.cancel()
            self._connection.close()

    async def _connect(self) -> None:
        """Open the line, however long that takes."""
        self._broken.clear()
        while True:
            if self._failures:
                await asyncio.sleep(_RETRY_DELAYS[min(self._failures, len(_RETRY_DELAYS)) - 1])
            try:
                await self._connection.open(self._emitter.loading)
                return
            except (RedisError, OSError) as error:
                self._failures += 1
                outage.store.failed("publishing", error)

    def _flush_soon(self) -> None:
        """Send within this round of the event loop."""
        self._idle.clear()
        if not self._flush_due:
            self._flush_due = True
            asyncio.get_running_loop().call_soon(self.flush)

    def _send(self) -> None:
        """Send what is to be confirmed."""
        self._idle.clear()
        ended = self._sent_ended
        load = self._load() if ended or self._load_due else None
        self._load_due = False
        command, self._replicas = self._emitter.command(self._sent, ended=ended, load=load)
        self._sent_at = time.monotonic()
        try:
            self._connection.send_packed(command)
            if self._pending:
                self._connection.watch(self.flush)
        except RedisError as error:
            self._break(error)
            return
        if self._look is None:
            self._look = asyncio.get_running_loop().call_later(_LOOK, self._look_again)

    def _confirmed(self) -> bool:
        """Whether the answer to what was sent is here, and all is well. If not, :meth:`flush` is called once it is."""
        try:
            answers = self._connection.answers()
            if not answers:
                self._connection.watch(self.flush)
                return False
            self._connection.unwatch()
            receivers = self._emitter.receipt(answers[0])
        except StaleClaims as stale:
            for lease in [lease for lease in self._sent if lease.job in stale.jobs]:
                del self._sent[lease]
                self._sent_ended.discard(lease)
                self.drop(lease)
            self._on_stale(stale.jobs)
            self._load_due = True
            if self._sent:
                self._send()
            return not self._sent
        except RedisError as error:
            self._break(error)
            return False
        self._sent = {}
        self._works()
        for replica, count in zip(self._replicas, receivers, strict=True):
            self._note_receivers(replica, count)
        return True

    def _look_again(self) -> None:
        """Look for an answer that nothing has asked for since."""
        self._look = None
        if not self._sent or not self._connection.is_open:
            return
        waited = time.monotonic() - self._sent_at
        if waited > READ_TIMEOUT:
            self._break(TimeoutError("the store does not answer"))
            return
        if waited > _LOOK / 2:
            self.flush()
        if self._sent:
            self._look = asyncio.get_running_loop().call_later(_LOOK, self._look_again)

    def _break(self, error: Exception) -> None:
        """Have :meth:`run` connect anew."""
        self._connection.close()
        self._failures += 1
        if not isinstance(error, ConnectionError):
            outage.store.failed("publishing", error)
        # A line that was idle while the store was away shows it only now. If the store is away still, connecting fails.
        self._broken.set()

    def _works(self) -> None:
        if self._failures:
            self._failures = 0
            outage.store.served("publishing")

    def _note_receivers(self, replica: str, count: int) -> None:
        if count:
            self._deaf_since.pop(replica, None)
            return
        now = time.monotonic()
        if now - self._deaf_since.setdefault(replica, now) >= ORPHAN_GRACE:
            del self._deaf_since[replica]
            self._on_orphaned(replica)
