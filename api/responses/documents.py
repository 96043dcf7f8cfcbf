"""Documents of stored responses, made from the journals of their jobs.

A replica stores the document when a response ends. If it does not, because it has died or was shut down, whoever reads
the response makes the document and stores it: a response is a function of its journals.
"""

import asyncio
import logging
from collections.abc import Sequence

import msgspec

from api.chat.stream import ResponseStream
from api.chat.usage import UsageRecorder
from api.chat.writer import collect
from api.chat.writer import stream as written
from api.dialects.openai import OpenAI
from api.dialects.responses.render import ResponsesEncoder
from api.fairness import SMALL
from api.stored.record import StoredResponse, is_completion_id
from api.stored.store import ResponseStore
from shared.protocol.errors import Problem, ProblemKind, RequestRefused
from shared.protocol.events import TERMINAL, Event, Failed, decode_journal
from shared.protocol.request import ChatRequest
from shared.redis.records import UNREADABLE

logger = logging.getLogger(__name__)

_ENQUEUED = 60.0
"""Seconds after which the jobs of an accepted request are queued, or never will be."""

_BROKEN = Problem(kind=ProblemKind.INTERNAL, message="The server had an error while processing your request.")
_LOST = Failed(Problem(kind=ProblemKind.LOST, message="The response was lost. Please send the request again."))

_dialect = OpenAI()
"""The dialect of stored chat completions."""


async def find(store: ResponseStore, owner: str, response_id: str) -> StoredResponse | None:
    """Return a stored response; None if it does not exist. One in the foreground exists once it has a document.

    Makes the document of a response that has ended without one. Raises :class:`RequestRefused` when the store is
    unreachable.
    """
    record = await store.get(owner, response_id)
    return record if record is None or record.document else await end_if_over(store, owner, record)


async def end_if_over(store: ResponseStore, owner: str, record: StoredResponse) -> StoredResponse | None:
    """Make the document of a response without one if its jobs have ended; return what :func:`find` returns."""
    progress = await store.progress(owner, record)
    if progress.over and (progress.started or progress.age > _ENQUEUED):
        return await _finish(store, owner, record)
    return msgspec.structs.replace(record, started=progress.started) if record.background else None


async def finish_completions(store: ResponseStore, owner: str) -> None:
    """Make the documents of an owner's chat completions that have ended without one."""
    running = [response_id for response_id in await store.running(owner) if is_completion_id(response_id)]
    for response_id in await store.without_payloads(owner, running):
        await find(store, owner, response_id)


async def run_to_end(
    stream: ResponseStream, request: ChatRequest, recorder: UsageRecorder, *, response_id: str, created: int
) -> bytes:
    """Wait until a response has ended, failed or not, and return its document."""
    encoder = ResponsesEncoder(request, response_id=response_id, created=created)
    try:
        async for _ in written(stream, request, encoder, recorder, kept=True):
            pass
    except Exception:
        logger.exception("response %s failed", response_id)
        encoder.failure(_BROKEN)
    return encoder.document


async def document_of(record: StoredResponse, journals: Sequence[Sequence[Event]]) -> bytes:
    """Return the document of a response whose jobs have ended with ``journals``.

    It is empty for a response of the Responses API in the foreground that has failed. Raises :class:`RequestRefused`
    for a chat completion that has failed, and :class:`ValueError` if a journal has a gap.
    """
    request, recorder = record.request, UsageRecorder()
    assert request is not None
    stream = ResponseStream(list(record.jobs), record.model)
    for choice, events in zip(stream.choices, journals, strict=True):
        # A job that was cancelled because its choice was complete may have no terminal event; its reader needs none.
        choice.fill(events if events and isinstance(events[-1], TERMINAL) else [*events, _LOST])
    if request.response.echoed is not None:
        document = await run_to_end(stream, request, recorder, response_id=record.bare_id, created=record.created)
        return document if request.response.background or not isinstance(recorder.outcome, ProblemKind) else b""
    started = await stream.started()
    encoder = _dialect.render(
        request, response_id=record.bare_id, created=record.created, fingerprint=started.fingerprint
    )
    return encoder.completion(await collect(stream, request, recorder), recorder.usage())


async def _finish(store: ResponseStore, owner: str, record: StoredResponse) -> StoredResponse | None:
    """End a response whose jobs have ended. One in the foreground that has failed is deleted, as if it had a client."""
    journals = await store.journals(record)
    size = sum(len(item) for items in journals for item in items)
    try:
        if size <= SMALL:
            document = await _made(record, journals)
        else:
            # It waits for nothing, so it can be made in a thread's own event loop.
            document = await store.thread.run(owner, size, lambda: asyncio.run(_made(record, journals)))
    except RequestRefused:
        document = b""
    except UNREADABLE as error:
        logger.warning("response %s is lost, because a journal is damaged: %s", record.id, error)
        document = await document_of(record, [(_LOST,)] * len(record.jobs)) if record.background else b""
    if not document:
        await store.delete(owner, record.id)
        return None
    logger.info("response %s got its document from its journals", record.id)
    if await store.end(owner, record, document):
        return msgspec.structs.replace(record, document=document, jobs=())
    return await store.get(owner, record.id)


async def _made(record: StoredResponse, journals: Sequence[Sequence[bytes]]) -> bytes:
    return await document_of(record, [decode_journal(items) for items in journals])
