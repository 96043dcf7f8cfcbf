"""Streams of background responses, made from the journals of their jobs.

The events and their numbers depend on the journal and on the stored document only. So every stream of a response has
the same events, whichever replica sends it, and however often it is cut and resumed.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import TypeVar

from api.chat.queue_events import INTERVAL, QueueEvents, another_attempt
from api.chat.reader import ResponseReader
from api.chat.stream import LOST
from api.chat.usage import UsageRecorder
from api.chat.writer import encoded
from api.dialects.responses.render import ResponsesEncoder
from api.responses import documents
from api.responses.forms import encoder_of
from api.stored.record import StoredResponse
from api.stored.store import ResponseStore
from shared.protocol.errors import Problem, ProblemKind, RequestRefused
from shared.protocol.events import Delta, Event, Finished, Started, decode_journal
from shared.protocol.request import ChatRequest
from shared.redis.records import UNREADABLE

_Read = TypeVar("_Read")

_PAUSE = (0.02, 0.3)
"""Shortest and longest pause in seconds between two reads of a journal. It grows while there is nothing new."""

_OUTAGE = 600.0
"""Seconds for which the store may be unreachable before a stream ends with an error."""

_MAX_READS = 800
"""Reads of journals per second beyond which the shortest pause grows: each stream reads on its own."""


class Replay:
    def __init__(self, request: ChatRequest, encoder: ResponsesEncoder) -> None:
        self._encoder = encoder
        self._reader = ResponseReader(request, UsageRecorder())
        self._position: int | None = None
        """Number of tokens so far; None until the first attempt has started."""

    @property
    def has_started(self) -> bool:
        return self._position is not None

    def feed(self, event: Event) -> bytes:
        """Encode one event. Repeats are skipped, and so is a failure, which the document has."""
        match event:
            case Started() if self._position is None:
                self._position = 0
            case Delta() if event.position == self._position:
                self._position += len(event.tokens)
            case Finished() if self._position is not None:
                pass
            case _:
                return b""
        return b"".join(encoded(self._encoder, self._reader.feed(0, event)))


async def _outlasting(read: Callable[[], Awaitable[_Read]]) -> _Read:
    """Return what ``read`` returns; repeat it while the store is unreachable, because the response may go on."""
    until = time.monotonic() + _OUTAGE
    while True:
        try:
            return await read()
        except RequestRefused as refusal:
            if refusal.problem.kind is not ProblemKind.STORE_UNAVAILABLE or time.monotonic() >= until:
                raise
        await asyncio.sleep(_PAUSE[1])


async def follow(
    store: ResponseStore, owner: str, record: StoredResponse, *, after: int, queue_events: QueueEvents | None = None
) -> AsyncIterator[bytes]:
    """Yield the events of a background response whose numbers are greater than ``after``, until it has ended.

    With ``queue_events``, comments tell its place in the queue, and that another attempt has started.
    """
    if record.request is None:
        raise AssertionError("only background responses are streamed again")
    encoder = encoder_of(record, record.request, after=after)
    replay = Replay(record.request, encoder)
    yield encoder.queued()
    store.followers += 1
    try:
        read, pause, running = 0, _PAUSE[0], True
        first = last = None
        announced = 0.0
        while running:
            running, items, before = await _outlasting(partial(store.journal, owner, record, read))
            if read and before != (first, last) and (running or before[0] is not None):
                # The store has lost its last writes, as in a failover, and the rest may be that of another text.
                raise RequestRefused(LOST)
            if items:
                first, last = first or items[0], items[-1]
            read += len(items)
            events = decode_journal(items)
            pieces = b"".join(map(replay.feed, events))
            if queue_events is not None:
                moves = (event for event in events if isinstance(event, Started) and event.attempt > 1)
                pieces = b"".join(map(another_attempt, moves)) + pieces
                due = not replay.has_started and time.monotonic() >= announced + INTERVAL
                # The first one names the job, also where it has started.
                if running and (due or not announced):
                    announced = time.monotonic()
                    pieces += await queue_events.place(record.model, record.jobs[0])
            if pieces:
                yield pieces
            if running and not items and pause == _PAUSE[1]:
                # The replica that should store the document may have gone.
                await _outlasting(partial(documents.end_if_over, store, owner, record))
            if running:
                shortest = max(_PAUSE[0], store.followers / _MAX_READS)
                pause = min(_PAUSE[1], shortest if items else 1.5 * pause)
                await asyncio.sleep(pause)
        ended = await _outlasting(partial(store.get, owner, record.id))
        if ended is None or not ended.document:
            message = "The response was deleted, or the store has lost it."
            raise RequestRefused(Problem(kind=ProblemKind.NOT_FOUND, message=message))
    except RequestRefused as refusal:
        yield encoder.error(refusal.problem)
    except UNREADABLE:
        yield encoder.error(Problem(kind=ProblemKind.LOST, message="The events of the response are damaged."))
    else:
        yield encoder.ending(ended.document)
    finally:
        store.followers -= 1
