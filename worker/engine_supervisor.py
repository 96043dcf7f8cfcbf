"""Keeps an engine process alive: starts it, watches its steps, and replaces it when it dies or hangs."""

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

LOOK = 1 / 3
"""Seconds between two looks at the engine's silence."""

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
HEALTHY_AFTER = 60.0
"""Seconds of life after which an engine's death counts as the first one again."""


class EngineSupervisor:
    """Owns the engine process of a worker."""

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
        """``step_timeout`` is the most seconds that a step may take (see :mod:`worker.watchdog`)."""
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
        """What the engine is doing while it does not serve, or why it can't; for people."""
        self.failing = False
        self.on_change: Callable[[], None] = lambda: None
        """Called when an engine has come or gone."""

    async def run(self) -> None:
        """Keep an engine running until cancelled.

        Raises :class:`EngineLoadError` when the very first one can't load: the settings are wrong then.
        """
        pause = FIRST_PAUSE
        while True:
            began = time.monotonic()
            try:
                await self._one_life()
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

    async def _one_life(self) -> None:
        engine = self.engine = EngineProcess(self._options, self._tell_stage, step_timeout=self._step_timeout)
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
                await self._give_back()

    def _tell_stage(self, stage: str) -> None:
        self.stage = stage
        logger.info("engine: %s", stage)

    async def _watch(self, engine: EngineProcess) -> None:
        watchdog = asyncio.create_task(self._watchdog(engine), name="engine watchdog")
        try:
            await engine.run(self._service.on_stepped, self._service.on_refused)
        finally:
            watchdog.cancel()

    async def _watchdog(self, engine: EngineProcess) -> None:
        while True:
            await asyncio.sleep(next_tick(min(LOOK, self._step_timeout / 10)))
            silence, patience = engine.watchdog.look(), engine.watchdog.patience
            if silence > patience:
                logger.error("the engine has made no step for %.1f s and is replaced", silence)
                engine.kill()
                return

    async def _give_back(self) -> None:
        """Return the dead engine's jobs to the queue: another worker, or the next engine, goes on with them."""
        suspects = self._service.suspects()
        claims = self._service.abandon_all()
        if not claims:
            return
        try:
            back = await self._queue.release(self._worker, claims, suspects=suspects)
            logger.warning("%d requests go on elsewhere", back)
        except (RedisError, OSError) as error:
            logger.warning("%d requests fall back to the queue when their leases lapse: %s", len(claims), error)
