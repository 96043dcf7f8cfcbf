"""Seeing to promises: answers that are to be stored are finished even when their replica has gone."""

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
from api.outbox import Outbox, PendingCompletion
from api.relay import ResponseStream
from api.service import ChatService
from api.stored import CompletionStore
from shared.protocol.errors import RequestRefused, store_unavailable
from shared.redis import outage
from shared.runtime.tasks import BackgroundTasks
from shared.runtime.ticks import next_tick

logger = logging.getLogger(__name__)

_RETRY = 1.0
"""Seconds between two attempts at what the store did not answer."""

_CLOSE_TIMEOUT = 2.0
"""Seconds for the last promises."""

_dialect = OpenAI()
"""The only interface that has ``store``."""


class CompletionRecovery:
    """Gives this replica's promises, and fulfils those of replicas that have gone."""

    def __init__(
        self,
        outbox: Outbox,
        service: ChatService,
        directory: Directory,
        stored: CompletionStore,
        admission: Admission,
        *,
        replica: str,
        lease: float,
    ) -> None:
        """``lease`` is for how many seconds replicas stay in the registry without a word."""
        self._outbox = outbox
        self._service = service
        self._directory = directory
        self._stored = stored
        self._admission = admission
        self._replica = replica
        self._lease = lease
        self._in_hand: set[str] = set()
        self._missing: dict[str, float] = {}
        self._took_over = False
        self._background_tasks = BackgroundTasks()

    async def promise(self, promise: PendingCompletion, answer: ResponseStream) -> None:
        """PendingCompletion to store ``answer``, which this replica relays; it must be told the :meth:`end`.

        Raises :class:`RequestRefused` when the store can't be reached.
        """
        self._in_hand.add(promise.answer_id)
        try:
            await self._outbox.add(promise)
        except (RedisError, OSError) as error:
            raise store_unavailable() from error
        answer.promised = True

    async def store(self, promise: PendingCompletion, document: bytes) -> bool:
        """Store an answer's JSON ``document`` as promised; return whether that was possible."""
        completion = to_store(document, promise.request, promise.messages)
        entry = self._outbox.entry(promise.answer_id)
        stored = await self._stored.save(promise.tenant, completion, fulfils=entry)
        if stored:
            self._in_hand.discard(promise.answer_id)
        return stored

    def end(self, promise: PendingCompletion, answer: ResponseStream, tally: UsageRecorder) -> None:
        """Note that the exchange is over: its promise is taken back, or left to another replica; returns at once."""
        if self._service.leaves(answer):
            tally.left_to_another = True
        elif promise.answer_id in self._in_hand:
            self._background_tasks.run(self._take_back(promise.answer_id), "take a promise back")

    async def run(self) -> None:
        """Until cancelled: look for promises whose replica has gone, and fulfil them."""
        while True:
            await asyncio.sleep(next_tick(self._lease / 3))
            try:
                await self._look()
                outage.store.served("promises")
            except (RedisError, OSError) as error:
                # While the store was away nobody could be seen; that says nothing about who is there.
                self._missing.clear()
                outage.store.failed("promises", error)

    async def aclose(self) -> None:
        """Wait until the last promises are taken back, though not for a store that is away: others drop them then."""
        await self._background_tasks.finish(_CLOSE_TIMEOUT)

    async def _look(self) -> None:
        if self._service.draining:
            return
        there = {replica.id for replica in self._directory.fleet.replicas}
        gone = await self._outbox.owners() - there - {self._replica}
        now = time.monotonic()
        self._missing = {replica: self._missing.get(replica, now) for replica in gone}
        for replica, since in self._missing.items():
            if now - since >= self._lease:
                # What is moved shows in the outbox, even when the answer to this is lost.
                self._took_over = True
                await self._outbox.take_over(replica)
        if self._took_over:
            now = await self._outbox.now()
            for promise in await self._outbox.own(but=self._in_hand):
                logger.info("answer %s is finished in place of a replica that has gone", promise.answer_id)
                self._in_hand.add(promise.answer_id)
                age = max(0.0, now - promise.given) if promise.given is not None else 0.0
                self._background_tasks.run(self._fulfil(promise, age), "fulfil a promise")
            self._took_over = False

    async def _fulfil(self, promise: PendingCompletion, age: float) -> None:
        """Store the answer of a request that was accepted ``age`` seconds ago."""
        tally = UsageRecorder()
        answer = self._service.follow(
            promise.jobs,
            promise.request.model,
            age=age,
            queue_timeout=promise.queue_timeout,
        )
        tally.answer = answer
        try:
            await self._follow(promise, answer, tally)
        except RequestRefused as refusal:
            logger.warning("answer %s is not stored, as it has failed: %s", promise.answer_id, refusal)
        except Exception:
            logger.exception("answer %s is not stored: its promise makes no sense", promise.answer_id)
        finally:
            self._service.close(answer)
        if not self._service.leaves(answer):
            await self._take_back(promise.answer_id)
            self._settle(promise, tally)

    async def _follow(self, promise: PendingCompletion, answer: ResponseStream, tally: UsageRecorder) -> None:
        """Follow ``answer`` to its end and store it. Raises :class:`RequestRefused` when it fails."""
        request = promise.request
        started = await answer.started()
        encoder = _dialect.render(
            request, answer_id=promise.answer_id, created=int(promise.accepted), fingerprint=started.fingerprint
        )
        choices = await collect(answer, request, tally)
        document = encoder.completion(choices, tally.usage())
        while True:
            if await self.store(promise, document):
                return
            await asyncio.sleep(_RETRY)

    def _settle(self, promise: PendingCompletion, tally: UsageRecorder) -> None:
        """Count what the request took, as its own replica could not."""
        if promise.tenant:
            self._service.charge(promise.request, promise.tenant, tally)
        if promise.reserved is not None:
            self._admission.settle_for(promise.tenant, *promise.reserved, promise.request, tally)

    async def _take_back(self, answer_id: str) -> None:
        """Take a promise back that is not fulfilled. An outage is waited out: nobody else should try to fulfil it."""
        while answer_id in self._in_hand:
            try:
                await self._outbox.remove(answer_id)
                self._in_hand.discard(answer_id)
            except (RedisError, OSError):
                await asyncio.sleep(_RETRY)
