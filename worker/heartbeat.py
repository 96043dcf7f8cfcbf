"""The worker's heartbeat: renews its registry record and leases, and reaps expired leases of other workers."""

import asyncio
import logging
import os
import time
from collections import deque
from contextlib import suppress

from arq.connections import ArqRedis
from redis.exceptions import RedisError

from shared.protocol.queue import JobQueue
from shared.protocol.registry import WorkerInfo, WorkerStatus, announce_worker, withdraw_worker
from shared.redis import outage
from shared.runtime.logs import summary
from shared.runtime.settings import WorkerSettings
from shared.runtime.ticks import next_tick
from shared.runtime.version import VERSION
from worker.consumer import ChatWorker
from worker.engine_supervisor import EngineSupervisor
from worker.service import ModelService

logger = logging.getLogger(__name__)

_RATE_WINDOW = 5.0
"""Seconds over which the token rate is averaged."""


class Heartbeat:
    """Renews the worker's registry record and leases, and returns jobs with expired leases to the queue."""

    def __init__(
        self,
        redis: ArqRedis,
        queue: JobQueue,
        service: ModelService,
        consumer: ChatWorker,
        engine_supervisor: EngineSupervisor,
        settings: WorkerSettings,
        worker: str,
        *,
        aliases: tuple[str, ...] = (),
    ) -> None:
        """``worker`` is this worker's id. ``aliases`` are the model's further names, besides the queue's."""
        self._aliases = aliases
        self._redis = redis
        self._queue = queue
        self._service = service
        self._consumer = consumer
        self._engine_supervisor = engine_supervisor
        self._settings = settings
        self._worker = worker
        self._started = time.time()
        self._rate: deque[tuple[float, int]] = deque([(time.monotonic(), 0)])
        self._hurry = asyncio.Event()
        self.draining = False

    async def run(self) -> None:
        """Renew three times per lease duration until cancelled. An unreachable store is retried at the next beat."""
        interval = self._settings.lease / 3
        while True:
            try:
                await self.renew()
                outage.store.served("heartbeat")
            except (RedisError, OSError) as error:
                outage.store.failed("heartbeat", error)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), next_tick(interval))
            self._hurry.clear()

    def hurry(self) -> None:
        """Renew now, because the registry record has changed."""
        self._hurry.set()

    async def renew(self) -> None:
        """Renew the registry record and the leases, stop jobs whose lease was lost, and reap expired leases.

        Raises :class:`RedisError` or :class:`OSError` when the store fails.
        """
        await announce_worker(self._redis, self.info(), lease=self._settings.lease)
        claims = self._service.claims()
        if claims:
            for job in await self._queue.renew(self._worker, claims):
                logger.info("request %s: lease lost, stopping it here", job)
                self._service.abandon(job)
        requeued, _ = await self._queue.reap()
        if requeued:
            logger.warning("%d requests lost their worker and wait for another: %s", *summary(requeued))

    async def withdraw(self) -> None:
        """Remove the registry record."""
        await withdraw_worker(self._redis, self.info())

    def info(self) -> WorkerInfo:
        """Return the current registry record."""
        engine_info, gauges = self._service.engine_info, self._service.gauges
        return WorkerInfo(
            id=self._worker,
            host=self._settings.node,
            pid=os.getpid(),
            model=self._queue.model,
            status=self._status(),
            engine=self._settings.engine,
            device=engine_info.device if engine_info else self._settings.device,
            fingerprint=engine_info.fingerprint if engine_info else "",
            started=self._started,
            slots=self._consumer.max_jobs,
            used=self._service.active,
            context_length=min(engine_info.context_length, engine_info.cache_tokens) if engine_info else 0,
            cache_usage=gauges.cache_usage,
            engine_requests=gauges.requests,
            batch=gauges.scheduled,
            steps=gauges.steps,
            tokens=gauges.tokens,
            tokens_per_second=self._token_rate(gauges.tokens),
            requests=self._service.requests,
            engine_restarts=self._engine_supervisor.restarts,
            version=VERSION,
            detail=self._engine_supervisor.stage,
            aliases=self._aliases,
        )

    def _status(self) -> WorkerStatus:
        if self.draining:
            return "draining"
        if self._service.engine_info is not None:
            return "serving"
        return "failing" if self._engine_supervisor.failing else "loading"

    def _token_rate(self, tokens: int) -> float:
        """Return tokens per second over the rate window. A lower count than before means a new engine."""
        now = time.monotonic()
        if tokens < self._rate[-1][1]:
            self._rate.clear()
        self._rate.append((now, tokens))
        while now - self._rate[0][0] > _RATE_WINDOW and len(self._rate) > 2:
            self._rate.popleft()
        since, tokens_then = self._rate[0]
        elapsed = now - since
        return (tokens - tokens_then) / elapsed if elapsed > 0 else 0.0
