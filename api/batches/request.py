"""One batch request: served like a client's request, but in the lowest priority class, and retried while
problems pass."""

import asyncio
import logging
import random
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import msgspec
from prometheus_client import CollectorRegistry

from api.batches.input import read_line
from api.batches.record import Batch
from api.batches.results import Result, failure_of, response_of
from api.batches.store import BatchStore
from api.chat.exchange import ChatExchange, ChatServices
from api.chat.routes import Responder, translated
from api.chat.span import end_background_span
from api.dialects import BATCHED
from api.dialects.base.interface import Dialect
from api.files.store import FileStore
from api.http.bodies import BodyParser, check_body_size
from api.keys import ApiKey, Keyring
from api.metrics import catalogue
from api.models.directory import Directory
from api.records.errors import store_unavailable
from shared.protocol.errors import Problem, ProblemKind, RequestRefused, refuse
from shared.protocol.request import ChatRequest
from shared.runtime.settings import ApiSettings
from shared.runtime.ticks import Backoff, until

logger = logging.getLogger(__name__)

_TRANSIENT: frozenset[ProblemKind] = frozenset(
    {
        ProblemKind.NO_WORKER,
        ProblemKind.QUEUE_FULL,
        ProblemKind.QUEUE_TIMEOUT,
        ProblemKind.STORE_UNAVAILABLE,
        ProblemKind.SHUTTING_DOWN,
        ProblemKind.RATE_LIMITED,
        ProblemKind.BUDGET,
    }
)
"""Problems that pass. The request is submitted again until it succeeds or the batch ends."""

_RETRYABLE: frozenset[ProblemKind] = frozenset({ProblemKind.LOST, ProblemKind.ENGINE_FAILED, ProblemKind.INTERNAL})
"""Problems that may pass. The request is submitted again a few times."""

_MAX_FAILURES = 5
"""Maximum number of submissions of a request that end with a doubtful problem."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 15.0
"""Bounds of the time in seconds before a request is submitted again."""


class BatchMetrics:
    """Metrics of the batches that this replica feeds."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = catalogue.BATCH_LINES.counter(registry)
        self._ended = catalogue.ENDED_BATCHES.counter(registry)
        self._unfinished = catalogue.UNFINISHED_BATCHES.gauge(registry)
        # Rates are right only if a series exists before its first event.
        self.requests(completed=0, failed=0)
        for status in ("completed", "failed", "expired", "cancelled"):
            self._ended.labels(status)

    def requests(self, *, completed: int, failed: int) -> None:
        """Count requests that have got a result."""
        self._requests.labels("completed").inc(completed)
        self._requests.labels("failed").inc(failed)

    def ended(self, status: str) -> None:
        self._ended.labels(status).inc()

    def unfinished(self, count: int) -> None:
        self._unfinished.set(count)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchServices:
    """What the batches that a replica feeds share."""

    store: BatchStore
    files: FileStore
    keyring: Keyring
    directory: Directory
    metrics: BatchMetrics
    parser: BodyParser
    chat: ChatServices
    responder: Responder
    settings: ApiSettings


async def serve_request(
    services: BatchServices, batch: Batch, index: int, read: Callable[[], Awaitable[bytes]], yielding: asyncio.Event
) -> Result | None:
    """Return the result of the request with this ``index``, whose bytes ``read`` returns.

    They are read for each submission, and not kept while the request waits. Once ``yielding`` is set, a request that
    would be submitted again has no result.
    """
    dialect, request_id = BATCHED[batch.endpoint](), f"req_{uuid.uuid4().hex}"
    failures, backoff = 0, Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
    while True:
        try:
            line = read_line(await read())
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return failure_of(index, "", "invalid_json_line", "The input file has changed since it was validated.")
        custom_id = line.custom_id
        try:
            chat = await _parsed(services, batch, index, dialect, bytes(line.body))
            del line  # It refers to the bytes that were read.
            result = await _serve(services, chat, index, custom_id, dialect, request_id)
        except RequestRefused as refusal:
            problem = refusal.problem
        except Exception:
            logger.exception("a request of batch %s failed", batch.id)
            problem = Problem(
                kind=ProblemKind.INTERNAL, message="The server had an error while processing this request."
            )
        else:
            return result
        failures += problem.kind in _RETRYABLE
        if problem.kind not in _TRANSIENT and (problem.kind not in _RETRYABLE or failures >= _MAX_FAILURES):
            return _failed(index, custom_id, dialect, problem, request_id)
        if problem.kind is not ProblemKind.QUEUE_TIMEOUT:  # Otherwise, it has waited.
            # A budget may be raised before it is renewed.
            least = 0 if problem.kind is ProblemKind.BUDGET else problem.retry_after or 0
            pause = max(backoff.pause(), min(least, _LONGEST_PAUSE))
            await until(yielding, pause * random.uniform(0.75, 1.25))  # noqa: S311
        if yielding.is_set():
            return None


async def _serve(
    services: BatchServices, chat: ChatExchange, index: int, custom_id: str, dialect: Dialect, request_id: str
) -> Result:
    """Submit a request and wait for its response. Raises :class:`RequestRefused`."""
    try:
        async with chat:
            started = await chat.stream.started()
            encoder = dialect.render(
                chat.request, response_id=chat.id, created=int(chat.accepted), fingerprint=started.fingerprint
            )
            document = await services.responder.whole(chat, encoder)
            usage = chat.recorder.usage()
    except RequestRefused as refusal:
        chat.recorder.outcome = refusal.problem.kind
        raise
    finally:
        end_background_span(chat.span, chat.recorder)
    return response_of(index, custom_id, 200, document, request_id=request_id, usage=usage, notes=chat.notes)


async def _parsed(services: BatchServices, batch: Batch, index: int, dialect: Dialect, body: bytes) -> ChatExchange:
    """Parse the body of a batch request. Nothing else refers to it, so its images are freed when they are queued."""
    tenant = f"batches of {batch.owner}"  # Other requests of the owner do not wait for them.
    translate = partial(_translated, services.settings, dialect, body)
    request, messages = await services.parser.run(tenant, len(body), translate)
    key, started_at = _unlimited(services, batch.owner), time.monotonic()
    span = services.chat.tracing.start_span("batch line", started_at)
    span.set({"vinoqueue.batch": batch.id, "vinoqueue.line": index})
    return ChatExchange(
        services.chat,
        request,
        key=key,
        headers={},
        messages=messages,
        started_at=started_at,
        span=span,
    )


def _translated(settings: ApiSettings, dialect: Dialect, body: bytes) -> tuple[ChatRequest, bytes]:
    """Return the request in ``body`` and, if its response is to be stored, its messages."""
    request, messages = translated(dialect, body)
    for field in ("stream", "background"):
        if getattr(request.response, field):
            message = f"Unsupported value: batches do not support '{field}'."
            raise refuse(ProblemKind.INVALID, message, param=field, code="unsupported_value")
    check_body_size(len(body), request, settings.max_body)
    return msgspec.structs.replace(request, tier="batch"), messages


def _unlimited(services: BatchServices, owner: str) -> ApiKey | None:
    """Return the batch's key without its rate limits, which do not count batches. Its budgets do.

    Raises :class:`RequestRefused` when the key is no longer valid, or the keys have not been read yet.
    """
    if not owner:
        return None
    if not services.keyring.loaded:
        raise store_unavailable()
    key = services.keyring.named(owner)
    if key is None or not services.keyring.is_valid(key):
        raise refuse(ProblemKind.UNAUTHORIZED, "The API key of this batch is no longer valid.")
    return msgspec.structs.replace(key.without_rates(), queue_timeout=None)


def _failed(index: int, custom_id: str, dialect: Dialect, problem: Problem, request_id: str) -> Result:
    if problem.kind is ProblemKind.TIMEOUT:
        return failure_of(index, custom_id, "request_timeout", problem.message)
    reply = dialect.error(problem)
    return response_of(index, custom_id, reply.status, reply.body, request_id=request_id)
