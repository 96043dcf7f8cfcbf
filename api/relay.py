"""The relay: one subscription for the life of a replica, fanned out to the answers in this process.

Pub/sub may lose messages (a reconnect, a slow reader); the journal has them all. A gap in the positions, a
reconnect, or a long silence makes the relay read the job's journal, so an answer is whole whatever the
transport did. Repeats and stale attempts are dropped by position and attempt.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable

from arq.connections import ArqRedis
from redis.exceptions import RedisError

from shared.protocol.errors import Problem, ProblemKind, RequestRefused
from shared.protocol.events import (
    Alternatives,
    Delta,
    Event,
    Failed,
    Finished,
    Rejected,
    Started,
    decode_frame,
    decode_journal,
)
from shared.redis import keys, outage
from shared.redis.raw_connection import RawConnection
from shared.redis.records import UNREADABLE, is_wrong_type, report_unreadable
from shared.redis.subscription import subscribe
from shared.runtime.tasks import cancel_all

logger = logging.getLogger(__name__)

SILENCE = 5.0
"""Seconds without an event after which an answer's journal is read, in case something was missed."""

_RECONNECT_PAUSE = 0.25

_MERGE_FROM = 64
"""Events that may wait for a consumer before they are merged."""

Batch = list[tuple[int, Event]]
"""Events with the index of the choice that each belongs to."""


class ResponseStream:
    """The events of one request, from all of its choices, in order for each choice."""

    def __init__(self, jobs: list[str], model: str, cancel: Callable[[str], object] | None = None) -> None:
        """``cancel`` is called with a job whose choice was ended with :meth:`end`, and returns at once."""
        self.jobs = jobs
        self.model = model
        self.choices = [ChoiceStream(job, choice, self) for choice, job in enumerate(jobs)]
        self._events: Batch = []
        self._arrived = asyncio.Event()
        self._merge_at = _MERGE_FROM
        self._unfinished = len(jobs)
        self._waiting = False
        self._cancel = cancel
        self.ended: list[str] = []
        """Jobs whose choices were ended with :meth:`end`."""
        self.bypass: Callable[[int, Event], bool] | None = None
        """Called with a choice and its event while the consumer of :meth:`batches` waits for more; returns whether it
        has done with the event all there is to do. So a token need not wake a task."""
        self.arriving = False
        """Whether its jobs are still on their way to the queue, so that it means nothing if they are not there."""
        self.abandoned = False
        """Whether it was ended from this side, so that the jobs may still be at work."""
        self.problem: Problem | None = None
        """Why the first of its choices that failed did."""
        self.cancellation: asyncio.Task[frozenset[str]] | None = None
        """Once its jobs are cancelled; returns those that workers had."""
        self.promised = False
        """Whether it will be stored even if this replica goes: its jobs are then left to another one."""

    @property
    def over(self) -> bool:
        """Whether every choice has had its last event."""
        return self._unfinished == 0

    def put(self, choice: int, event: Event, *, last: bool) -> None:
        """Add an event; called by the choice's choice_stream. What a slow consumer has not taken is merged."""
        if self._waiting and not self._events and self.bypass is not None and self.bypass(choice, event):
            return
        self._events.append((choice, event))
        if len(self._events) >= self._merge_at:
            self._events = _merged(self._events)
            self._merge_at = max(_MERGE_FROM, 2 * len(self._events))
        if last:
            self._unfinished -= 1
            if self.problem is None and isinstance(event, Failed | Rejected):
                self.problem = event.problem
        self._arrived.set()

    def end(self, choice: int) -> None:
        """End a choice before its job has ended: no more of its text is wanted.

        The job is cancelled, which frees its slot. A promised answer's jobs are cancelled with the last of its choices
        instead, as another replica may have to read their journals until then.
        """
        choice_stream = self.choices[choice]
        if not choice_stream.ended:
            choice_stream.finish()
            self.ended.append(choice_stream.job)
            if self._cancel is not None and not self.promised:
                self._cancel(choice_stream.job)

    def fail(self, problem: Problem) -> None:
        """End every choice that is still open with ``problem``."""
        if self.over:
            return
        self.abandoned = True
        for choice_stream in self.choices:
            choice_stream.fail(problem)

    async def started(self) -> Started:
        """Wait for the worker's first word, and leave it in the stream.

        Raises :class:`RequestRefused` when the request was rejected or failed before it began.
        """
        while not self._events:
            await self._arrived.wait()
        event = self._events[0][1]
        if isinstance(event, Rejected | Failed):
            raise RequestRefused(event.problem)
        if not isinstance(event, Started):
            raise RequestRefused(
                Problem(kind=ProblemKind.INTERNAL, message=f"The worker began with {type(event).__name__}.")
            )
        return event

    async def batches(self) -> AsyncIterator[Batch]:
        """Yield what has arrived since the last time, until every choice is over.

        A slow consumer gets few large batches, a fast one many small ones.
        """
        while True:
            if not self._events:
                if self._unfinished == 0:
                    return
                self._arrived.clear()
                self._waiting = True
                try:
                    await self._arrived.wait()
                finally:
                    self._waiting = False
            batch, self._events = self._events, []
            yield batch


def _merged(events: Batch) -> Batch:
    """Join the deltas of each choice that follow each other. The order within a choice stays as it is."""
    merged: Batch = []
    newest: dict[int, int] = {}
    for choice, event in events:
        at = newest.get(choice)
        before = merged[at][1] if at is not None else None
        if at is not None and isinstance(event, Delta) and isinstance(before, Delta):
            joined = Delta(
                before.position,
                before.tokens + event.tokens,
                before.text + event.text,
                before.logprobs + event.logprobs,
                before.pieces + event.pieces,
            )
            merged[at] = (choice, joined)
        else:
            newest[choice] = len(merged)
            merged.append((choice, event))
    return merged


class ChoiceStream:
    """One choice's place in its event stream: what has been seen, and what may come next."""

    __slots__ = ("_held", "answer", "attempt", "choice", "ended", "heard", "job", "position")

    def __init__(self, job: str, choice: int, answer: ResponseStream) -> None:
        self.job = job
        self.choice = choice
        self.attempt = 0
        self.position = 0
        self.ended = False
        self.heard = time.monotonic()
        self.answer = answer
        self._held: list[tuple[int, Event]] | None = None

    def take(self, attempt: int, event: Event) -> bool:
        """Accept an event as it came over the wire. Returns False when events before it are missing.

        The event is then held back, like all that follow, until :meth:`fill` brings the missing ones.
        """
        if (
            type(event) is Delta
            and attempt == self.attempt
            and event.position == self.position
            and self._held is None
            and not self.ended
        ):
            # The usual case, once a token.
            self.position += len(event.tokens)
            self.answer.put(self.choice, event, last=False)
            return True
        if self._held is not None:
            self._held.append((attempt, event))
            return True
        if self.ended or attempt < self.attempt:
            return True
        first = attempt > self.attempt
        at = self.position if isinstance(event, Started | Rejected) else getattr(event, "position", self.position)
        if at > self.position or (first and not isinstance(event, Started | Rejected | Failed)):
            self._held = [(attempt, event)]
            return False
        self._accept(attempt, event)
        return True

    def hold(self) -> None:
        """Keep back what comes until :meth:`fill`."""
        if self._held is None:
            self._held = []

    def fill(self, journal: Iterable[Event]) -> None:
        """Accept what the journal has, then what was held back meanwhile.

        Raises :class:`ValueError` when the journal lacks tokens in the middle.
        """
        held, self._held = self._held or [], None
        self.heard = time.monotonic()
        for event in journal:
            if self.ended:
                break
            if isinstance(event, Delta | Finished) and event.position > self.position:
                raise ValueError(f"the tokens {self.position} to {event.position - 1} are missing")
            self._accept(max(self.attempt, 1), event)
        for attempt, event in held:
            if not self.ended and attempt >= self.attempt and getattr(event, "position", 0) <= self.position:
                self._accept(attempt, event)

    def resume(self) -> None:
        """Give up waiting for :meth:`fill`: the journal could not be read. What was held back is in it."""
        self._held = None

    def finish(self) -> None:
        """End this choice with what has been seen of it."""
        self._held = None
        self.ended = True
        self.answer.put(self.choice, Finished(self.position, "stop"), last=True)

    def fail(self, problem: Problem) -> None:
        """End this choice."""
        self._held = None
        if not self.ended:
            self.ended = True
            self.answer.put(self.choice, Failed(problem), last=True)

    def _accept(self, attempt: int, event: Event) -> None:
        new_to_client = self.attempt == 0
        self.attempt = attempt
        match event:
            case Delta():
                known = self.position - event.position
                if known == 0:
                    self.position += len(event.tokens)
                    self.answer.put(self.choice, event, last=False)
            case Started():
                if new_to_client:
                    self.answer.put(self.choice, event, last=False)
            case Finished() | Failed() | Rejected() | Alternatives():
                self.ended = True
                self.answer.put(self.choice, event, last=True)


class Relay:
    """Routes the frames on this replica's channel to the answers that wait for them."""

    def __init__(self, redis: ArqRedis, replica: str) -> None:
        self._redis = redis
        self._replica = replica
        self._choices: dict[str, ChoiceStream] = {}
        self._recoveries: set[asyncio.Task[None]] = set()
        self._subscribed = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self.frames = 0

    @property
    def listening(self) -> bool:
        """Whether the subscription stands."""
        return self._subscribed.is_set()

    def answers(self) -> set[ResponseStream]:
        """The answers that are open now."""
        return {choice_stream.answer for choice_stream in self._choices.values()}

    def open(self, answer: ResponseStream) -> None:
        """Route events to ``answer`` from now on."""
        for choice_stream in answer.choices:
            self._choices[choice_stream.job] = choice_stream
        self._empty.clear()

    def catch_up(self, answer: ResponseStream) -> None:
        """Read the journals of an answer that began elsewhere. What it hears on no channel, :meth:`sweep` finds."""
        self._recover(answer.choices)

    async def emptied(self) -> None:
        """Wait until no answer is open."""
        await self._empty.wait()

    def close(self, answer: ResponseStream) -> None:
        """Route nothing more to ``answer``."""
        for job in answer.jobs:
            self._choices.pop(job, None)
        answer.bypass = None
        if not self._choices:
            self._empty.set()

    async def run(self, line: RawConnection) -> None:
        """Listen on ``line`` until cancelled; after each reconnection, read the journals for what was missed."""
        while True:
            try:
                await subscribe(line, keys.replica_channel(self._replica), self.route, on_subscribed=self._begin)
            except (RedisError, OSError) as error:
                outage.store.failed("frames", error)
                await asyncio.sleep(_RECONNECT_PAUSE)
            finally:
                self._subscribed.clear()

    async def sweep(self) -> None:
        """Look after answers that have been silent for long, until cancelled."""
        while True:
            await asyncio.sleep(SILENCE / 2)
            limit = time.monotonic() - SILENCE
            self._recover(
                [
                    choice_stream
                    for choice_stream in self._choices.values()
                    if choice_stream.heard < limit and not choice_stream.ended
                ]
            )

    async def recovered(self) -> None:
        """Wait until no journal is being read."""
        await asyncio.gather(*self._recoveries)

    async def close_all(self) -> None:
        """Cancel what still reads journals."""
        await cancel_all(self._recoveries)

    def route(self, frame: bytes) -> None:
        """Hand a frame's events to the answers that they belong to."""
        self.frames += 1
        try:
            entries = decode_frame(frame)
        except UNREADABLE as error:
            report_unreadable(keys.replica_channel(self._replica), error)
            return
        choices = self._choices
        now = time.monotonic()
        gaps = []
        for entry in entries:
            choice_stream = choices.get(entry.job)
            if choice_stream is not None:
                choice_stream.heard = now
                if not choice_stream.take(entry.attempt, entry.event):
                    gaps.append(choice_stream)
        self._recover(gaps)

    def _begin(self) -> None:
        outage.store.served("frames")
        self._subscribed.set()
        self._recover(list(self._choices.values()))

    def _recover(self, choices: list[ChoiceStream]) -> None:
        if choices:
            task = asyncio.create_task(self._read_journals(choices), name="journal recovery")
            self._recoveries.add(task)
            task.add_done_callback(self._recoveries.discard)

    async def _read_journals(self, choices: list[ChoiceStream]) -> None:
        for choice_stream in choices:
            choice_stream.hold()
        try:
            async with self._redis.pipeline(transaction=False) as pipe:
                for choice_stream in choices:
                    pipe.exists(keys.payload(choice_stream.job))
                    pipe.lrange(keys.journal(choice_stream.job), 0, -1)
                replies = await pipe.execute(raise_on_error=False)
        except (RedisError, OSError) as error:
            logger.log(outage.store.level, "the journals of %d requests are not read yet: %s", len(choices), error)
            for choice_stream in choices:
                choice_stream.resume()
            return
        for choice_stream, exists, journal in zip(choices, replies[::2], replies[1::2], strict=True):
            if isinstance(journal, Exception) and not is_wrong_type(journal):
                logger.warning("journal of %s not read: %s", choice_stream.job, journal)
                choice_stream.resume()
            else:
                self._fill(choice_stream, journal)
                if (
                    not (exists or choice_stream.ended or choice_stream.answer.arriving)
                    and choice_stream.job in self._choices
                ):
                    choice_stream.fail(_LOST)

    def _fill(self, choice_stream: ChoiceStream, journal: list[bytes] | Exception) -> None:
        """Bring ``choice_stream`` up to date from its journal, or end its choice when that can't be read."""
        try:
            if isinstance(journal, Exception):
                raise ValueError(str(journal))
            choice_stream.fill(decode_journal(journal))
        except UNREADABLE as error:
            report_unreadable(keys.journal(choice_stream.job), error)
            choice_stream.answer.abandoned = True
            choice_stream.fail(_DAMAGED)


_LOST = Problem(
    kind=ProblemKind.LOST,
    message="The request was lost in an outage of the store behind this service. Please send it again.",
)
_DAMAGED = Problem(
    kind=ProblemKind.LOST,
    message="The answer can't go on: its journal in the store behind this service is damaged. "
    "Please send the request again.",
)
