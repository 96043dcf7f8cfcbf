"""Supervises the engine process: starts it, watches its steps, and replaces it when it dies or hangs."""

import asyncio
import logging
import time
from collections.abc import Callable

from redis.exceptions import RedisError

from shared.protocol.queue import JobQueue
from shared.runtime.ticks import next_tick
from worker.consumer import ChatWorker
from worker.engine.interface import EngineLoadError
from worker.engine.options import EngineOptions
from worker.engine.process import EngineProcess
from worker.service import ModelService

logger = logging.getLogger(__name__)

CHECK_INTERVAL = 1 / 3
"""Seconds between two checks of the watchdog."""

FIRST_PAUSE = 0.5
"""Base of the restart delay in seconds; it doubles with each crash."""

LONGEST_PAUSE = 30.0
"""Maximum restart delay in seconds."""

HEALTHY_AFTER = 60.0
"""Seconds of uptime after which the restart delay starts from its base again."""


class EngineSupervisor:
    """Owns the worker's engine process."""

    def __init__(
        self,
        options: EngineOptions,
        service: ModelService,
        consumer: ChatWorker,
        queue: JobQueue,
        worker: str,
        *,
        step_timeout: float,
    ) -> None:
        """``step_timeout`` is the maximum duration of a step in seconds (see :mod:`worker.watchdog`)."""
        self._options = options
        self._service = service
        self._consumer = consumer
        self._queue = queue
        self._worker = worker
        self._step_timeout = step_timeout
        self._closing = False
        self.engine: EngineProcess | None = None
        self.restarts = 0
        self.stage = "starting"
        """Human-readable: the stage of loading, or why the engine is not serving. Empty while it serves."""
        self.failing = False
        self.on_change: Callable[[], None] = lambda: None
        """Called when an engine becomes ready, and when it ends."""

    async def run(self) -> None:
        """Run engine processes, one after the other, until cancelled or stopped.

        Raises :class:`EngineLoadError` when the first one can't be loaded: the settings are at fault then.
        """
        pause = FIRST_PAUSE
        while True:
            began = time.monotonic()
            try:
                await self._run_engine()
            except EngineLoadError as error:
                if self.restarts == 0 and self._service.engine_info is None and not self.failing:
                    raise
                self.stage = str(error)
            if self._closing:
                return
            pause = FIRST_PAUSE if time.monotonic() - began > HEALTHY_AFTER else min(pause * 2, LONGEST_PAUSE)
            self.restarts += 1
            self.failing = True
            logger.error("%s; the next engine starts in %.1f s", self.stage, pause)
            await asyncio.sleep(pause)

    async def stop(self) -> None:
        """End the engine process; :meth:`run` returns."""
        self._closing = True
        if self.engine is not None:
            await self.engine.stop()

    async def _run_engine(self) -> None:
        engine = self.engine = EngineProcess(
            self._options,
            step_timeout=self._step_timeout,
            on_stepped=self._service.on_stepped,
            on_refused=self._service.on_refused,
            on_loading=self._on_stage,
        )
        try:
            await engine.start()
            engine_info = await engine.ready()
            self._service.use(engine, engine_info)
            self._consumer.open(engine_info.slots)
            self.stage, self.failing = "", False
            self.on_change()
            logger.info(
                "engine ready in %.1f s: %s, context %d tokens, KV cache %d tokens, batches of %d",
                engine_info.load_seconds,
                engine_info.device,
                engine_info.context_length,
                engine_info.cache_tokens,
                engine_info.slots,
            )
            await self._watch(engine)
        finally:
            self._consumer.close_intake()
            self._service.use(None, None)
            self.on_change()
            await engine.stop()
            if not self._closing:
                self.stage = f"the engine process {engine.exit_description}"
                await self._release_jobs()

    def _on_stage(self, stage: str) -> None:
        self.stage = stage
        logger.info("engine: %s", stage)

    async def _watch(self, engine: EngineProcess) -> None:
        watchdog = asyncio.create_task(self._watchdog(engine), name="engine watchdog")
        try:
            await engine.ended()
        finally:
            watchdog.cancel()

    async def _watchdog(self, engine: EngineProcess) -> None:
        while True:
            await asyncio.sleep(next_tick(min(CHECK_INTERVAL, self._step_timeout / 10)))
            silence, timeout = engine.watchdog.silence(), engine.watchdog.timeout
            if silence > timeout:
                logger.error("engine hung: no step for %.1f s; replacing it", silence)
                engine.kill()
                return

    async def _release_jobs(self) -> None:
        """Release the dead engine's jobs to the queue: another worker, or the next engine, continues them."""
        suspects = self._service.suspects()
        claims = self._service.abandon_all()
        if not claims:
            return
        try:
            released = await self._queue.release(self._worker, claims, suspects=suspects)
            logger.warning("%d requests released to the queue", released)
        except (RedisError, OSError) as error:
            logger.warning("%d requests return to the queue when their leases expire: %s", len(claims), error)
