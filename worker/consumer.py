"""The consumer: claims jobs from the queue while slots are free, and runs each as a task.

It extends arq's worker and keeps arq's job format, function registry and task bookkeeping. Replaced are polling (by
wake-up messages, with a slow poll as a fallback), the claim (one Lua script), crash recovery (leases) and results
(a job's outcome is in its events).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
from arq.connections import ArqRedis
from arq.jobs import DeserializationError, deserialize_job_raw
from arq.typing import WorkerCoroutine
from arq.worker import Worker, func
from redis.exceptions import RedisError

from shared.protocol.errors import Problem, ProblemKind
from shared.protocol.events import Rejected, encode_event
from shared.protocol.queue import JOB_FUNCTION, LINGER_MS, RESERVED_MS, Claim, JobQueue
from shared.protocol.request import Job, QueuedJob, decode_job
from shared.redis import keys, outage
from shared.redis.records import UNREADABLE
from shared.runtime.ticks import next_tick
from worker.shared_requests import RequestGone, SharedRequests

logger = logging.getLogger(__name__)

DEAD_LETTER_LIMIT = 100
"""Maximum number of dead letters kept for inspection."""

_decode = msgspec.msgpack.Decoder().decode

_UNREADABLE = (DeserializationError, KeyError, IndexError, TypeError, RequestGone, *UNREADABLE)
"""Exceptions raised by a payload that is corrupt or foreign."""

_REJECTED = Rejected(
    Problem(kind=ProblemKind.LOST, message="The worker can't read this request from the store. Please send it again.")
)

Serve = Callable[[Claim, Job], Awaitable[None]]
Prefetch = Callable[[Job], None]


class ChatWorker(Worker):
    """Claims jobs while slots are free, and runs each as an asyncio task."""

    def __init__(
        self,
        redis: ArqRedis,
        queue: JobQueue,
        worker_id: str,
        serve: Serve,
        *,
        slots: int,
        poll: float,
        prefetch: Prefetch = lambda _: None,
    ) -> None:
        """``serve`` runs one job to its end, at most ``slots`` at once. ``poll`` is the fallback poll interval in
        seconds. ``prefetch`` is called with a job that is about to be claimed, though another worker may claim it.
        """

        async def chat(ctx: dict[Any, Any], *arguments: Any, **kwargs: Any) -> None:
            await serve(*arguments)

        super().__init__(
            functions=[func(chat, name=JOB_FUNCTION, keep_result=0, timeout=None)],
            queue_name=keys.queue(queue.model),
            redis_pool=redis,
            handle_signals=False,
            max_jobs=slots,
            poll_delay=poll,
            health_check_key=keys.worker(worker_id) + ":arq",
            job_deserializer=_decode,
            retry_jobs=False,
        )
        self._queue = queue
        self._worker_id = worker_id
        self._prefetch = prefetch
        self._requests = SharedRequests(queue)
        self._look = asyncio.Event()
        self._look_again: asyncio.TimerHandle | None = None
        self.allow_pick_jobs = False

    def wake(self, payload: bytes = b"") -> None:
        """Look at the queue now. ``payload`` is that of the job behind the wake-up, if the message carried it."""
        if payload and self.allow_pick_jobs and len(self.tasks) < self.max_jobs:
            try:
                _, queued = self._read(payload)
                request = queued.inline_request()
            except _UNREADABLE:
                pass  # the worker that claims it makes it a dead letter
            else:
                if request is not None:
                    self._prefetch(queued.job(request))
        self._look.set()

    def open(self, slots: int) -> None:
        """Claim jobs from now on, up to ``slots`` at once."""
        self.max_jobs = slots
        self.allow_pick_jobs = True
        self.wake()

    def close_intake(self) -> None:
        """Stop claiming. Running jobs continue."""
        self.allow_pick_jobs = False

    async def main(self) -> None:
        """Claim and run jobs until cancelled."""
        while True:
            try:
                await self._poll_iteration()
                outage.store.served("queue")
            except (RedisError, OSError) as error:
                outage.store.failed("queue", error)
                await asyncio.sleep(min(self.poll_delay_s, 1.0))
            # Not wait_for(): before Python 3.12 it creates a task, which delays every claim.
            with suppress(TimeoutError):
                async with asyncio.timeout(next_tick(self.poll_delay_s)):
                    await self._look.wait()
            self._look.clear()

    async def drained(self) -> None:
        """Wait until no job is running."""
        while self.tasks:
            await asyncio.wait(self.tasks.values())
            await asyncio.sleep(0)

    async def _poll_iteration(self) -> None:
        # A full worker that is woken claims too: with no free slot, jobs reserved for it are offered to others.
        while self.allow_pick_jobs:
            claims, left = await self._queue.claim(self._worker_id, used=len(self.tasks), slots=self.max_jobs)
            self._start(claims)
            full = len(self.tasks) >= self.max_jobs
            if left and not claims and not full:
                self._wake_later()
            if full or not claims or not left:
                return

    def _wake_later(self) -> None:
        """Look again when the waiting jobs are no longer reserved for other workers."""
        if self._look_again is not None:
            self._look_again.cancel()
        self._look_again = self.loop.call_later(RESERVED_MS / 1000, self.wake)

    def _start(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            task = self.loop.create_task(self._run_claim(claim), name=f"job {claim.job}")
            self.tasks[claim.job] = task
            task.add_done_callback(partial(self._ended, claim.job))

    def _ended(self, job: str, task: asyncio.Task[None]) -> None:
        self.tasks.pop(job, None)
        if not self.tasks:
            self._requests.clear()
        self.wake()
        if not task.cancelled() and (error := task.exception()):
            logger.error("request %s failed in the worker", job, exc_info=error)

    async def _run_claim(self, claim: Claim) -> None:
        try:
            coroutine, queued = self._read(claim.payload)
            if queued.id != claim.job:
                raise ValueError(f"its id is {queued.id[:64]!r}")
            job = await self._requests.complete(queued)
        except _UNREADABLE as error:
            await self._dead_letter(claim, error)
            return
        await coroutine({}, claim, job)
        self.jobs_complete += 1

    def _read(self, payload: bytes) -> tuple[WorkerCoroutine, QueuedJob]:
        """Return the coroutine and the job of a payload. Raises one of :data:`_UNREADABLE`."""
        name, arguments, _, _, _ = deserialize_job_raw(payload, deserializer=_decode)
        return self.functions[name].coroutine, decode_job(arguments[0])

    async def _dead_letter(self, claim: Claim, error: Exception) -> None:
        """Move an unreadable job to the dead letters, so that it is not retried, and end it for its client."""
        self.jobs_failed += 1
        logger.error("unreadable job %s moved to %s: %r", claim.job, keys.DEAD_LETTERS, error)
        async with self.pool.pipeline(transaction=True) as pipe:
            pipe.lpush(keys.DEAD_LETTERS, claim.payload)
            pipe.ltrim(keys.DEAD_LETTERS, 0, DEAD_LETTER_LIMIT - 1)
            pipe.zrem(keys.inflight(self._queue.model), claim.job)
            pipe.delete(keys.payload(claim.job), keys.state(claim.job), keys.journal(claim.job))
            # The replica is unknown without the payload; it finds the rejection in the journal.
            pipe.rpush(keys.journal(claim.job), encode_event(_REJECTED))
            pipe.pexpire(keys.journal(claim.job), LINGER_MS)
            # The other jobs of an unreadable shared request can't run either.
            pipe.delete(keys.request(claim.job.rpartition(":")[0]))
            replies = await pipe.execute(raise_on_error=False)
        for reply in replies:
            if isinstance(reply, Exception):
                logger.error("dead letter of job %s is incomplete: %s", claim.job, reply)
