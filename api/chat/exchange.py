"""One chat request, from admission to settlement."""

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field

import msgspec

from api.chat.admission import Admission, AdmittedRequest, LimitReached
from api.chat.settlement import Settlement
from api.chat.span import add_events, describe_request, describe_response
from api.chat.stream import ResponseStream
from api.chat.streams import OpenStreams
from api.chat.submission import Submission
from api.chat.usage import RequestMetrics, UsageRecorder
from api.dialects.base.interface import Lookup
from api.fairness import TenantBytes
from api.http.exchange import HttpExchange, milliseconds
from api.keys import ApiKey
from api.limits import Counts, LimitName
from api.media.loader import MediaLoader
from api.stored.record import StoredResponse, record_of
from api.stored.store import ResponseStore
from shared.protocol.errors import RequestRefused
from shared.protocol.request import ChatRequest
from shared.tracing import NO_SPAN, Span, Tracing

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatServices:
    """What the chat exchanges of a replica share."""

    admission: Admission
    media: MediaLoader
    submission: Submission
    streams: OpenStreams
    stored: ResponseStore
    settlement: Settlement
    metrics: RequestMetrics
    response_room: TenantBytes
    tracing: Tracing
    request_timeout: float
    """Maximum duration of a request in seconds."""


@dataclass(slots=True, eq=False)
class ChatExchange:
    """Owns everything that a chat request holds: its reservation, jobs and their events, record in the store.

    An async context manager. Entering it accepts the request, or raises :class:`RequestRefused` and holds nothing.
    Leaving it releases everything, however the request has ended: completed, failed or aborted.
    """

    services: ChatServices
    request: ChatRequest
    """The request. Once admitted, it has the model's own name instead of an alias, the model's default sampling, and
    the tier of its key."""
    key: ApiKey | None
    headers: Lookup
    """The HTTP request's."""
    messages: bytes
    """The JSON array that the client sent, if it set ``store``."""
    started_at: InitVar[float]
    """The start of the request (monotonic seconds)."""
    span: Span = NO_SPAN
    """Its span, which the caller ends."""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    """The id of the response, without the dialect's prefix."""
    recorder: UsageRecorder = field(init=False)
    counts: Mapping[LimitName, Counts] = field(default_factory=dict)
    """The state of the key's rate limits."""
    accepted: float = 0.0
    """Unix time at which the jobs were queued; 0 until then."""
    _admitted: AdmittedRequest = field(init=False)
    _record: StoredResponse | None = None
    _ended: bool = False
    """Whether the response is complete, so that its record stays."""
    _stream: ResponseStream | None = None
    _cancellation: asyncio.Task[frozenset[str]] | None = None

    def __post_init__(self, started_at: float) -> None:
        self.recorder = UsageRecorder(
            started_at,
            trace_id=self.span.trace_id if self.span.context is not None else "",
            share=self.services.response_room.holding(self.owner),
        )

    @classmethod
    def of(
        cls,
        services: ChatServices,
        exchange: HttpExchange,
        request: ChatRequest,
        headers: Lookup,
        *,
        messages: bytes = b"",
        span: Span | None = None,
    ) -> "ChatExchange":
        """Return the chat exchange of ``request``, which an HTTP request is or asks for. ``span`` is by default its."""
        return cls(
            services,
            request,
            key=exchange.key,
            headers=headers,
            messages=messages,
            started_at=exchange.started_at,
            span=exchange.span if span is None else span,
        )

    async def __aenter__(self) -> "ChatExchange":
        describe_request(self.span, self.request)
        # 1. The model, the key and its limits allow the request; its tokens and a place are reserved.
        await self._admit()
        try:
            # 2. Its images are read. 3. Its jobs are queued. 4. Who has entered reads the stream until a job has ended.
            await self._submit()
        except BaseException as error:
            # 5. What has begun is undone, here or in _release, in the same order.
            if self._stream is not None and isinstance(error, RequestRefused):
                self._stream.fail(error.problem)
            self._run(self._withdraw, self._close, self._settle)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._release()

    async def submit_again(self, jobs: Sequence[int]) -> None:
        """Queue these jobs of an accepted request again, whose results were lost; :attr:`stream` is then theirs.

        Raises :class:`RequestRefused`.
        """
        self._close()
        await self._enqueue({}, jobs)

    async def store(self, document: bytes) -> bool:
        """Store the response's JSON ``document`` if the request asks for it; return whether that succeeded.

        Failures are only logged: whoever reads the response later makes the document again.
        """
        if self._record is None:
            return False
        self._ended = True
        return await self.services.stored.save(self._admitted.tenant, self._record, document)

    @property
    def owner(self) -> str:
        """The id of the request's API key, or empty without one."""
        return self.key.id if self.key is not None else ""

    @property
    def stream(self) -> ResponseStream:
        """The events of an accepted request."""
        assert self._stream is not None
        return self._stream

    @property
    def record(self) -> StoredResponse:
        """The record of an accepted request that is to be stored."""
        assert self._record is not None
        return self._record

    @property
    def is_stored(self) -> bool:
        return self._record is not None

    @property
    def notes(self) -> Mapping[str, str]:
        """Headers of the response, which name what has no effect in the request."""
        return dict(self.request.response.notes)

    @property
    def outcome(self) -> str:
        """How an accepted request has ended; empty if it was not accepted."""
        return self.recorder.outcome if self.accepted else ""

    def log_fields(self) -> Mapping[str, object]:
        """Return the fields of an accepted request in the request log."""
        if not self.accepted:
            return {}
        usage = self.recorder
        fields: dict[str, object] = {
            "model": self.request.model,
            "stream": self.request.response.stream,
            "job": self.stream.jobs[0].partition(":")[0],
            "workers": ",".join(self.stream.workers) or None,
            "prompt_tokens": usage.prompt_tokens,
            "cached_tokens": usage.cached_tokens,
            "completion_tokens": usage.completion_tokens,
            "migrations": len(self.stream.move_causes) or None,
        }
        for name, seconds in (
            ("queue", usage.queue_wait),
            ("prompt", usage.prompt_seconds),
            ("prefill", usage.prefill_seconds),
            ("first_token", None if usage.first_token is None else usage.first_token - usage.started_at),
        ):
            if seconds is not None:
                fields[f"{name}_ms"] = milliseconds(seconds)
        return fields

    async def _admit(self) -> None:
        """Check that the request may be served, and reserve tokens and a concurrency place."""
        try:
            self._admitted = await self.services.admission.admit(self.key, self.request, self.headers)
        except LimitReached as refusal:
            self.counts = refusal.counts
            raise
        self.request = self._admitted.request
        self.counts = self._admitted.counts

    async def _submit(self) -> None:
        """Read the images, if there are any, and queue the jobs with them."""
        if not self.request.images:
            await self._enqueue({})
            return
        async with self.services.media.loaded(self.request, tenant=self._admitted.tenant) as (self.request, images):
            await self._enqueue(images)

    async def _enqueue(self, images: Mapping[str, bytes], only: Sequence[int] | None = None) -> None:
        """Queue the jobs, or ``only`` some, with the files of the ``images`` by digest."""
        services, tenant, wait = self.services, self._admitted.tenant, self._admitted.queue_timeout
        if self.request.response.background and wait is None:
            wait = services.request_timeout  # Nobody waits for the start of the response.
        team, weights = self._admitted.team, self._admitted.weights
        # 3a. The request becomes jobs: one for each prompt and choice.
        jobs = services.submission.split(self.request, tenant=tenant, team=team, trace=self.span.context)
        if only is not None:  # The request is counted, and its prompts are, as for another choice.
            jobs = [msgspec.structs.replace(jobs[index], is_first=False, choice=1) for index in only]
        # 3b. What must survive this replica is in the store before the jobs are.
        if self.request.store:
            await self._create_record(tuple(job.id for job in jobs))
        # 3c. The stream is open before the reply to 3d, because a worker may have claimed the jobs by then.
        self.recorder.queued = time.monotonic()
        self._stream = services.streams.open(
            [job.id for job in jobs],
            self.request.model,
            queue_timeout=wait,
            stored=self._record is not None,
            tenant=tenant,
        )
        # 3d. One script queues all jobs or none, and wakes workers.
        await services.submission.enqueue(self.request, jobs, self._stream, images, weights=weights)
        self.accepted = time.time() if self._record is None else self._record.created

    async def _create_record(self, jobs: tuple[str, ...]) -> None:
        """Store the record, from which the response can be read even if this replica dies."""
        record = record_of(self.request, self.id, jobs, created=int(time.time()), messages=self.messages)
        self._record = msgspec.structs.replace(record, input=b"[]")
        # It may have megabytes, and is in the store now.
        self.messages = b""
        await self.services.stored.create(self._admitted.tenant, record)

    def _release(self) -> None:
        """Release everything, in this order.

        Nothing here waits, so that a cancellation cannot interrupt it: requests to the store run in the background.
        Settling comes after closing, because it needs the cancellation's list of claimed jobs.
        """
        self.recorder.release()
        if self.stream.left:
            # As if this replica had died: the concurrency place expires.
            self._run(self._close, self._count, self._trace)
        else:
            self._run(self._withdraw, self._close, self._count, self._trace, self._settle)

    def _run(self, *steps: Callable[[], None]) -> None:
        """Run all steps, whichever of them fail."""
        for step in steps:
            try:
                step()
            except Exception:
                logger.exception("a request of model %s was not released completely", self.request.model)

    def _withdraw(self) -> None:
        """Delete the record of a response that is not complete."""
        if self._record is not None and not self._ended:
            self.services.stored.withdraw(self._admitted.tenant, self._record.id)

    def _close(self) -> None:
        if self._stream is not None:
            self._cancellation = self.services.streams.close(self._stream)

    def _count(self) -> None:
        self.services.metrics.record(self.stream, self.recorder, timed=self.request.tier != "batch")

    def _trace(self) -> None:
        if self.span.context is not None and self.request.work.metered:
            describe_response(self.span, self.request, self.recorder, self.id)
            add_events(self.span, self.stream, self.recorder)

    def _settle(self) -> None:
        """Correct the tokens of the key's rate limit, and free its concurrency place."""
        admitted = self._admitted
        self.services.settlement.settle(
            self.request,
            admitted.account,
            admitted.reservation,
            self.recorder,
            self._stream,
            self._cancellation,
        )
