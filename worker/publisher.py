"""Publishing: what the jobs of a step have to say goes to Redis in one script call.

While an answer is outstanding, what comes meanwhile gathers, and goes with the next call; so a slow Redis makes frames
larger, not calls more frequent. An answer is looked for when there is more to say: the engine's next step wakes this
process anyway, and a second time each step would cost as much again.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable

from redis.exceptions import RedisError, TimeoutError

from shared.events import TERMINAL, Delta, Event, encode_event
from shared.line import Line
from shared.queue import JobQueue, Publication, StaleClaims
from shared.store import READ_TIMEOUT

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
        queue: JobQueue,
        line: Line,
        worker: str,
        *,
        load: Callable[[], float],
        on_stale: Callable[[frozenset[str]], None],
        on_orphaned: Callable[[str], None],
    ) -> None:
        """``line`` is the publisher's own. ``load`` tells the share of slots in use; ``on_stale`` is called with jobs
        that other workers hold now, ``on_orphaned`` with the id of an API replica that has gone."""
        self._queue = queue
        self._line = line
        self._worker = worker
        self._load = load
        self._on_stale = on_stale
        self._on_orphaned = on_orphaned
        self._pending: dict[str, Publication] = {}
        self._flush_due = False
        self._ending = False
        """Whether a job ends with what waits, so that the load has changed."""
        self._sent: dict[str, Publication] = {}
        """What the store has not confirmed yet. It is sent again when the line breaks."""
        self._replicas: tuple[str, ...] = ()
        """To whom it goes, in the order of the answer."""
        self._sent_at = 0.0
        self._look: asyncio.TimerHandle | None = None
        self._broken = asyncio.Event()
        self._failures = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._deaf_since: dict[str, float] = {}

    def post(self, job: str, attempt: int, reply_to: str, *events: Event) -> None:
        """Have ``events`` published soon; the last one of a job is terminal."""
        self.add(job, attempt, reply_to, events)
        self._flush_soon()

    def add(self, job: str, attempt: int, reply_to: str, events: Iterable[Event]) -> None:
        """Have ``events`` published with the next :meth:`flush`."""
        pending = self._pending.get(job)
        if pending is None:
            pending = self._pending[job] = Publication(job, attempt, reply_to, [])
        for event in events:
            pending.events.append(encode_event(event))
            if type(event) is not Delta and isinstance(event, TERMINAL):
                pending.final = self._ending = True

    def discard(self, job: str, attempt: int, reply_to: str) -> None:
        """End the job in silence: its client has gone."""
        self._pending[job] = Publication(job, attempt, reply_to, [], final=True)
        self._ending = True
        self._flush_soon()

    def drop(self, job: str) -> None:
        """Forget what waits to be said about a job: it is no longer ours."""
        self._pending.pop(job, None)

    def flush(self) -> None:
        """Send all that waits, unless the store still owes an answer: it then goes as soon as that is here."""
        self._flush_due = False
        if not self._line.is_open or (self._sent and not self._confirmed()):
            self._idle.clear()
            return
        if self._pending:
            batch, self._pending = self._pending, {}
            self._send(batch)
        else:
            self._idle.set()

    async def flushed(self) -> None:
        """Wait until all has been sent, and confirmed."""
        self.flush()
        if self._sent and self._line.is_open:
            self._line.watch(self.flush)
        await self._idle.wait()

    async def run(self) -> None:
        """Keep the line open until cancelled. Redis' failures are waited out; what was said meanwhile is kept."""
        try:
            while True:
                await self._connect()
                if self._sent:
                    self._ending = True  # or it may have been lost with the line that a job ended
                    self._send(self._sent)
                else:
                    self.flush()
                await self._broken.wait()
        finally:
            if self._look is not None:
                self._look.cancel()
            self._line.close()

    async def _connect(self) -> None:
        """Open the line, however long that takes."""
        self._broken.clear()
        while True:
            if self._failures:
                await asyncio.sleep(_RETRY_DELAYS[min(self._failures, len(_RETRY_DELAYS)) - 1])
            try:
                await self._line.open(self._queue.emission_script)
                return
            except (RedisError, OSError) as error:
                self._note_failure(error)

    def _flush_soon(self) -> None:
        """Send within this round of the event loop."""
        self._idle.clear()
        if not self._flush_due:
            self._flush_due = True
            asyncio.get_running_loop().call_soon(self.flush)

    def _send(self, batch: dict[str, Publication]) -> None:
        self._idle.clear()
        load = self._load() if self._ending else None
        self._ending = False
        command, self._replicas = self._queue.emission(self._worker, batch.values(), load=load)
        self._sent = batch
        self._sent_at = time.monotonic()
        try:
            self._line.send(*command)
            if self._pending:
                self._line.watch(self.flush)
        except RedisError as error:
            self._break(error)
            return
        if self._look is None:
            self._look = asyncio.get_running_loop().call_later(_LOOK, self._look_again)

    def _confirmed(self) -> bool:
        """Whether the answer to what was sent is here, and all is well. If not, :meth:`flush` is called once it is."""
        try:
            answers = self._line.answers()
            if not answers:
                self._line.watch(self.flush)
                return False
            self._line.unwatch()
            receivers = self._queue.receipt(answers[0])
        except StaleClaims as stale:
            batch = {job: publication for job, publication in self._sent.items() if job not in stale.jobs}
            self._sent = {}
            for job in stale.jobs:
                self._pending.pop(job, None)
            self._on_stale(stale.jobs)
            self._ending = True
            if batch:
                self._send(batch)
            return not batch
        except RedisError as error:
            self._break(error)
            return False
        self._sent = {}
        self._failures = 0
        for replica, count in zip(self._replicas, receivers, strict=True):
            self._note_receivers(replica, count)
        return True

    def _look_again(self) -> None:
        """Look for an answer that nothing has asked for since."""
        self._look = None
        if not self._sent or not self._line.is_open:
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
        self._line.close()
        self._note_failure(error)
        self._broken.set()

    def _note_failure(self, error: Exception) -> None:
        if self._failures == 0:
            logger.warning("publishing waits for Redis: %s", error)
        self._failures += 1

    def _note_receivers(self, replica: str, count: int) -> None:
        if count:
            self._deaf_since.pop(replica, None)
            return
        now = time.monotonic()
        if now - self._deaf_since.setdefault(replica, now) >= ORPHAN_GRACE:
            del self._deaf_since[replica]
            self._on_orphaned(replica)
