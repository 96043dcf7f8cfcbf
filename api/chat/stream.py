"""Response streams: the events of one request inside a replica, in order for each choice."""

import asyncio
import time
from array import array
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal, NamedTuple

from msgspec.structs import replace

from shared.protocol.errors import Problem, ProblemKind, RequestRefused
from shared.protocol.events import (
    Alternatives,
    Delta,
    Event,
    Failed,
    Finished,
    Rejected,
    Started,
)

_MERGE_FROM = 64
"""Number of buffered events from which deltas are merged."""
_MERGE_TO = 15 * 1024
"""Maximum size of a merged delta as JSON in bytes. Clients bound lines, some to 64 kB."""

LOST = Problem(
    kind=ProblemKind.LOST,
    message="The request was lost in an outage of this service's store. Please send it again.",
)

Batch = list[tuple[int, Event]]
"""Events, each with the index of its choice."""

Cancel = Callable[[str, Sequence[str]], object]
"""Called with a model and its jobs that are to be cancelled."""


class StartedAttempt(NamedTuple):
    """An attempt that has started."""

    choice: int
    started: Started
    arrived: float
    """When its started event was accepted, in monotonic seconds."""


class ResponseStream:
    """The events of one request, from all of its choices, in order for each choice."""

    def __init__(
        self,
        jobs: Sequence[str],
        model: str,
        *,
        cancel: Cancel | None = None,
        queued: bool = True,
        stored: bool = False,
        tenant: str = "",
    ) -> None:
        """``cancel`` is called with the model and the job of a choice that :meth:`end` ends early; it must not block.

        ``queued`` is whether the jobs are in the queue; otherwise, set :attr:`queueing` once that is known.
        ``stored`` is whether the response has a record in the store. ``tenant`` is the id of the request's API key, if
        it has one.
        """
        self.tenant = tenant
        self.jobs = jobs
        self.model = model
        self.choices = [ChoiceStream(job, choice, self) for choice, job in enumerate(jobs)]
        self.attempts: list[StartedAttempt] = []
        """The attempts that have started, in this order."""
        self.problem: Problem | None = None
        """The problem of the first choice that failed."""
        self._events: Batch = []
        self._arrived = asyncio.Event()
        self._merge_at = _MERGE_FROM
        self._unfinished = len(jobs)
        self._cancel = cancel
        self._stored = stored
        self.queueing: Literal["pending", "queued", "refused"] = "queued" if queued else "pending"
        """Whether the jobs are known to be in the queue, or to be not."""
        self.left = False
        """Whether the jobs go on without this replica, because it shuts down: a reader makes the document."""
        self._abandoned = False
        """Whether the stream was ended by this replica, so that its jobs may still be running."""

    @property
    def is_queued(self) -> bool:
        """Whether the jobs are known to have been queued. A missing payload means a lost job only then."""
        return self.queueing == "queued"

    @property
    def has_unfinished_jobs(self) -> bool:
        """Whether jobs may be in the queue or running, and nobody needs them."""
        return self.queueing != "refused" and not self.left and (self._abandoned or not self.finished)

    @property
    def move_causes(self) -> list[str]:
        """The causes of further attempts, one for each."""
        return [attempt.started.cause for attempt in self.attempts if attempt.started.attempt > 1]

    @property
    def workers(self) -> list[str]:
        """The ids of the workers of the attempts that have started, one for each."""
        return [attempt.started.worker for attempt in self.attempts]

    @property
    def finished(self) -> bool:
        return self._unfinished == 0

    def put(self, choice: int, event: Event, *, last: bool) -> None:
        """Add an event; called by the choice's :class:`ChoiceStream`. Merges deltas when the consumer is slow."""
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
        """End a choice before its job has ended, because the rest of its text is not needed.

        The job is cancelled, which frees its slot.
        """
        choice_stream = self.choices[choice]
        if not choice_stream.ended:
            choice_stream.finish()
            if self._cancel is not None:
                self._cancel(self.model, [choice_stream.job])

    def leave(self, problem: Problem) -> None:
        """Fail the stream with ``problem`` because this replica shuts down. Jobs of a stored response go on."""
        self.left = self._stored and not self.finished
        self.fail(problem)

    def fail(self, problem: Problem) -> None:
        """End every open choice with ``problem``."""
        if self.finished:
            return
        self.abandon()
        for choice_stream in self.choices:
            choice_stream.fail(problem)

    def abandon(self) -> None:
        """Note that the jobs of choices that have ended may still be running."""
        self._abandoned = True

    async def first(self) -> Event:
        """Wait for the first event, and leave it in the stream."""
        while not self._events:
            await self._arrived.wait()
        return self._events[0][1]

    async def started(self) -> Started:
        """Wait for the first event, and leave it in the stream.

        Raises :class:`RequestRefused` when the request was rejected or failed before it started.
        """
        event = await self.first()
        if isinstance(event, Rejected | Failed):
            raise RequestRefused(event.problem)
        assert isinstance(event, Started)  # ChoiceStream holds back all others until it
        return event

    async def batches(self) -> AsyncIterator[Batch]:
        """Yield the events that arrived since the last batch, until every choice has ended.

        A slow consumer gets few large batches, a fast one many small ones.
        """
        while True:
            if not self._events:
                if self._unfinished == 0:
                    return
                self._arrived.clear()
                await self._arrived.wait()
            batch, self._events = self._events, []
            yield batch


def _merged(events: Batch) -> Batch:
    """Join deltas of the same choice that follow each other. The order within a choice is preserved."""
    runs: list[tuple[int, list[Delta] | Event]] = []
    open_runs: dict[int, tuple[list[Delta], int]] = {}
    """The last run of each choice, and how much may be added to it."""
    for choice, event in events:
        if not isinstance(event, Delta):
            open_runs.pop(choice, None)
            runs.append((choice, event))
            continue
        run, room = open_runs.get(choice, ([], 0))
        size = _json_size(event)
        if size > room:
            # A long delta is not copied again: each token is copied a bounded number of times.
            runs.append((choice, run := []))
            room = _MERGE_TO
        run.append(event)
        open_runs[choice] = (run, room - size)
    return [(choice, _joined(run) if isinstance(run, list) else run) for choice, run in runs]


def _json_size(delta: Delta) -> int:
    """Return an upper bound of the size of ``delta`` in a stream, in bytes: characters may be escaped in JSON, and a
    token with a log probability is a string and a list of bytes."""
    scored = chain(delta.pieces, (token.piece for top in delta.top for token in top))
    return 6 * len(delta.text) + 20 * len(delta.tokens) + sum(80 + 10 * len(piece) for piece in scored)


def _joined(run: list[Delta]) -> Delta:
    """Return deltas that follow each other as one."""
    if len(run) == 1:
        return run[0]
    return Delta(
        run[0].position,
        tuple(chain.from_iterable(delta.tokens for delta in run)),
        "".join(delta.text for delta in run),
        tuple(chain.from_iterable(delta.logprobs for delta in run)),
        tuple(chain.from_iterable(delta.pieces for delta in run)),
        tuple(chain.from_iterable(delta.top for delta in run)),
    )


@dataclass(slots=True, eq=False)
class ChoiceStream:
    """The events of one choice: checks attempts and positions, and drops repeats.

    When events are missing, later ones are held back until :meth:`fill` supplies the journal.

    A store that has lost its last writes, as in a failover, forgets tokens and claims that clients have seen. The next
    attempt then starts at an earlier position, perhaps with the number of the forgotten one. The choice continues only
    if that attempt generates the same tokens up to the client's position. Otherwise it fails with :data:`LOST`.
    """

    job: str
    choice: int
    response: ResponseStream
    attempt: int = 0
    ended: bool = False
    last_event: float = field(default_factory=time.monotonic)
    last_token: float = 0.0
    """When the relay last received tokens; 0 until then."""
    _started: int = 0
    """Newest attempt whose started event was accepted."""
    _held: list[tuple[int, Event]] | None = None
    _scored: bool = False
    """Whether the prompt's log probabilities or the job's result were accepted."""
    _tokens: "array[int]" = field(default_factory=lambda: array("i"))
    """The tokens that were accepted."""

    @property
    def position(self) -> int:
        return len(self._tokens)

    def push(self, attempt: int, event: Event) -> bool:
        """Accept an event from the channel. Returns False when events before it are missing.

        The event is then held back, like all that follow, until :meth:`fill` supplies the missing ones.
        """
        if (
            type(event) is Delta
            and attempt == self.attempt
            and event.position == len(self._tokens)
            and self._held is None
            and not self.ended
        ):
            # The common case, once per token.
            self._tokens.extend(event.tokens)
            self.response.put(self.choice, event, last=False)
            return True
        if self._held is not None:
            self._held.append((attempt, event))
            return True
        if self.ended or self._is_stale(attempt, event):
            return True
        first = attempt > self.attempt
        at = self.position if isinstance(event, Started | Rejected) else getattr(event, "position", self.position)
        if at > self.position or (first and not isinstance(event, Started | Rejected | Failed)):
            self._held = [(attempt, event)]
            return False
        self._accept(attempt, event)
        return True

    def hold(self) -> None:
        """Hold back all events until :meth:`fill`."""
        if self._held is None:
            self._held = []

    def fill(self, journal: Iterable[Event]) -> None:
        """Accept the events in ``journal``, then those held back.

        Raises :class:`ValueError` when the journal has a gap.
        """
        held, self._held = self._held or [], None
        self.last_event = time.monotonic()
        for event in journal:
            if self.ended:
                break
            if isinstance(event, Delta | Finished) and event.position > self.position:
                raise ValueError(f"the tokens {self.position} to {event.position - 1} are missing")
            self._accept(max(self.attempt, 1), event)
        for attempt, event in held:
            if not (self.ended or self._is_stale(attempt, event)) and getattr(event, "position", 0) <= self.position:
                self._accept(attempt, event)

    def resume(self) -> None:
        """Stop holding events back, because the journal could not be read. Those held back are dropped: a later read
        of the journal supplies them."""
        self._held = None

    def finish(self) -> None:
        """End this choice with the tokens accepted so far."""
        self._held = None
        self.ended = True
        self.response.put(self.choice, Finished(self.position, "stop"), last=True)

    def fail(self, problem: Problem) -> None:
        """End this choice with ``problem``, unless it has ended."""
        self._held = None
        if not self.ended:
            self.ended = True
            self.response.put(self.choice, Failed(problem), last=True)

    def abandon(self, problem: Problem) -> None:
        """End this choice with ``problem`` although its job may still be running."""
        self.response.abandon()
        self.fail(problem)

    def _is_stale(self, attempt: int, event: Event) -> bool:
        """Return whether an event is from an attempt before the current one.

        Workers cannot publish after a later attempt. An earlier one that starts is new: the store has lost a claim.
        """
        return attempt < self.attempt and not isinstance(event, Started)

    def _accept(self, attempt: int, event: Event) -> None:
        new_to_client = self.attempt == 0
        self.attempt = attempt
        match event:
            case Delta() if event.position == self.position:
                self._tokens.extend(event.tokens)
                self.response.put(self.choice, event, last=False)
            case Delta():
                if self._tokens[event.position : event.position + len(event.tokens)] != array("i", event.tokens):
                    self._lose()
            case Finished() if event.position < self.position:
                self._lose()
            case Started():
                if event.attempt > self._started:
                    self._started = event.attempt
                    # Without the prompt's tokens, which may be many.
                    started = replace(event, prompt_token_ids=()) if event.prompt_token_ids else event
                    self.response.attempts.append(StartedAttempt(self.choice, started, time.monotonic()))
                if new_to_client:
                    self.response.put(self.choice, event, last=False)
            case Finished() | Failed() | Rejected() | Alternatives():
                self.ended = True
                self.response.put(self.choice, event, last=True)
            case _ if not self._scored:
                self._scored = True
                self.response.put(self.choice, event, last=False)

    def _lose(self) -> None:
        """End this choice, because its job generates another text than the client has."""
        self.abandon(LOST)
