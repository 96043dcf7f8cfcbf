"""Completion recovery: responses with ``store: true`` are finished and stored even when their replica has gone."""

import asyncio
import logging
import time

from redis.exceptions import RedisError

from api.admission import Admission
from api.answers.usage_recorder import UsageRecorder
from api.answers.writing import collect
from api.dialects.openai import OpenAI
from api.dialects.openai.stored import to_store
from api.directory import Directory
from api.draining import Draining
from api.jobs.charges import TenantCharges
from api.open_streams import OpenStreams
from api.outbox import Outbox, PendingCompletion
from api.response_stream import ResponseStream
from api.responses.ending import run_to_end
from api.responses.record import is_response, record_of
from api.responses.store import ResponseStore
from api.stored import CompletionStore
from shared.protocol.errors import RequestRefused, store_unavailable
from shared.redis import outage
from shared.runtime.tasks import BackgroundTasks
from shared.runtime.ticks import next_tick

logger = logging.getLogger(__name__)

_RETRY = 1.0
"""Seconds between retries after a failure of the store."""

_CLOSE_TIMEOUT = 2.0
"""Seconds to wait for background removals at shutdown."""

_dialect = OpenAI()
"""The dialect of stored chat completions."""


class CompletionRecovery:
    """Registers this replica's pending completions, and finishes those of replicas that have gone."""

    def __init__(
        self,
        outbox: Outbox,
        stored: CompletionStore,
        streams: OpenStreams,
        draining: Draining,
        directory: Directory,
        admission: Admission,
        charges: TenantCharges,
        responses: ResponseStore,
        *,
        replica: str,
        lease: float,
    ) -> None:
        """``lease`` is the number of seconds for which replicas stay in the registry without a heartbeat."""
        self._outbox = outbox
        self._stored = stored
        self._streams = streams
        self._draining = draining
        self._directory = directory
        self._admission = admission
        self._charges = charges
        self._responses = responses
        self._replica = replica
        self._lease = lease
        self._active: set[str] = set()
        """Ids of pending completions that this replica is working on."""
        self._missing: dict[str, float] = {}
        """Replicas absent from the registry, and since when (monotonic seconds)."""
        self._unread = False
        """Whether the outbox may hold entries taken over but not read yet."""
        self._background_tasks = BackgroundTasks()

    async def register(self, pending: PendingCompletion, stream: ResponseStream) -> None:
        """Add ``pending`` to the outbox and mark ``stream`` recoverable. The caller must call :meth:`withdraw`.

        Raises :class:`RequestRefused` when the store is unreachable.
        """
        self._active.add(pending.answer_id)
        try:
            await self._outbox.add(pending)
        except (RedisError, OSError) as error:
            raise store_unavailable() from error
        stream.recoverable = True

    async def store(self, pending: PendingCompletion, document: bytes) -> bool:
        """Store the response's JSON ``document`` and remove its pending completion; return whether that succeeded."""
        entry = self._outbox.entry(pending.answer_id)
        if is_response(pending):
            stored = await self._responses.save(pending.tenant, record_of(pending, document), fulfils=entry)
        else:
            completion = to_store(document, pending.request, pending.messages)
            stored = await self._stored.save(pending.tenant, completion, fulfils=entry)
        if stored:
            self._active.discard(pending.answer_id)
        return stored

    def withdraw(self, pending: PendingCompletion) -> None:
        """Remove ``pending`` in the background, unless it is stored already."""
        if pending.answer_id in self._active:
            self._background_tasks.run(self._remove(pending.answer_id), "remove a pending completion")

    async def run(self) -> None:
        """Look for pending completions of replicas that have gone, and finish them, until cancelled."""
        while True:
            await asyncio.sleep(next_tick(self._lease / 3))
            try:
                await self._look()
                outage.store.succeeded("completion recovery")
            except (RedisError, OSError) as error:
                # Replicas cannot renew their records during an outage, so absence means nothing.
                self._missing.clear()
                outage.store.failed("completion recovery", error)

    async def aclose(self) -> None:
        """Wait for background removals, at most :data:`_CLOSE_TIMEOUT` seconds. Other replicas remove the rest."""
        await self._background_tasks.finish(_CLOSE_TIMEOUT)

    async def _look(self) -> None:
        if self._draining.draining:
            return
        present = {replica.id for replica in self._directory.fleet.replicas}
        gone = await self._outbox.owners() - present - {self._replica}
        now = time.monotonic()
        self._missing = {replica: self._missing.get(replica, now) for replica in gone}
        for replica, since in self._missing.items():
            if now - since >= self._lease:
                # Set before the call: the script may run although its reply is lost.
                self._unread = True
                await self._outbox.take_over(replica)
        if self._unread:
            now = await self._outbox.now()
            for pending in await self._outbox.own(but=self._active):
                logger.info("finishing stored completion %s of a replica that has gone", pending.answer_id)
                self._active.add(pending.answer_id)
                age = max(0.0, now - pending.given) if pending.given is not None else 0.0
                self._background_tasks.run(self._finish(pending, age), "finish a pending completion")
            self._unread = False

    async def _finish(self, pending: PendingCompletion, age: float) -> None:
        """Finish and store the response of a request that was accepted ``age`` seconds ago."""
        recorder = UsageRecorder()
        stream = self._streams.follow(
            pending.jobs,
            pending.request.model,
            age=age,
            queue_timeout=pending.queue_timeout,
        )
        reservation = await self._admission.adopt(pending.tenant, *pending.reserved) if pending.reserved else None
        try:
            await self._follow(pending, stream, recorder)
        except RequestRefused as refusal:
            logger.warning("completion %s not stored, because its request failed: %s", pending.answer_id, refusal)
        except Exception:
            logger.exception("completion %s not stored: its record is invalid", pending.answer_id)
        finally:
            self._streams.close(stream)
        if not self._draining.leaves(stream):
            await self._remove(pending.answer_id)
            if pending.tenant:
                self._charges.charge(pending.request, pending.tenant, recorder, stream)
            if reservation is not None:
                self._admission.settle(reservation, pending.request, recorder, stream)

    async def _follow(self, pending: PendingCompletion, stream: ResponseStream, recorder: UsageRecorder) -> None:
        """Read ``stream`` to its end and store the response. Raises :class:`RequestRefused` when the request fails.

        A background response is stored even then, because its client asks for it later.
        """
        request = pending.request
        if is_response(pending):
            document = await run_to_end(
                stream, request, recorder, answer_id=pending.answer_id, created=int(pending.accepted)
            )
            if stream.problem is not None and (not request.background or self._draining.leaves(stream)):
                raise RequestRefused(stream.problem)
        else:
            started = await stream.started()
            encoder = _dialect.render(
                request, answer_id=pending.answer_id, created=int(pending.accepted), fingerprint=started.fingerprint
            )
            document = encoder.completion(await collect(stream, request, recorder), recorder.usage())
        while True:
            if await self.store(pending, document):
                return
            await asyncio.sleep(_RETRY)

    async def _remove(self, answer_id: str) -> None:
        """Remove a pending completion from the outbox. Retries, or another replica would resume it."""
        while answer_id in self._active:
            try:
                await self._outbox.remove(answer_id)
                self._active.discard(answer_id)
            except (RedisError, OSError):
                await asyncio.sleep(_RETRY)
