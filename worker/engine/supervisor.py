"""Supervises the engine process: starts it, watches its steps, and replaces it when it dies or hangs."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from shared.runtime.ticks import next_tick
from worker.engine.current import CurrentEngine, LoadedEngine
from worker.engine.interface import EngineLoadError, RawStep, Refused
from worker.engine.options import EngineOptions
from worker.engine.process import EngineProcess

logger = logging.getLogger(__name__)

CHECK_INTERVAL = 1 / 3
"""Seconds between two checks of the watchdog."""

INITIAL_BACKOFF = 0.5
"""Base of the restart delay in seconds; it doubles with each crash."""

MAX_BACKOFF = 30.0
"""Maximum restart delay in seconds."""

HEALTHY_AFTER = 60.0
"""Seconds of uptime after which the restart delay starts from its base again."""


class Outputs(Protocol):
    """What is told of the sequences."""

    def on_stepped(self, report: RawStep) -> None:
        """Take the outputs of a step."""

    def on_refused(self, report: Refused) -> None:
        """Take the refusal of a sequence."""


class EngineSupervisor:
    """Owns the worker's engine process, and keeps :class:`~worker.engine.current.CurrentEngine` up to date."""

    def __init__(
        self,
        options: EngineOptions,
        current: CurrentEngine,
        outputs: Outputs,
        *,
        step_timeout: float,
        on_change: Callable[[], None],
        release_jobs: Callable[[], Awaitable[None]],
    ) -> None:
        """``step_timeout`` is the maximum duration of a step in seconds (see :mod:`worker.engine.watchdog`).

        ``on_change`` is called when an engine becomes ready, and when it ends. ``release_jobs`` is called after an
        engine has crashed, to return its jobs to the queue.
        """
        self._options = options
        self._current = current
        self._outputs = outputs
        self._step_timeout = step_timeout
        self._on_change = on_change
        self._release_jobs = release_jobs
        self._running: EngineProcess | None = None
        self._closing = False

    async def run(self) -> None:
        """Run engine processes, one after the other, until cancelled or stopped.

        Raises :class:`EngineLoadError` when the first one can't be loaded: the settings are at fault then.
        """
        backoff = INITIAL_BACKOFF
        while True:
            started = time.monotonic()
            try:
                await self._run_engine()
            except EngineLoadError as error:
                if self._current.restarts == 0:
                    raise
                self._current.stage = str(error)
            if self._closing:
                return
            backoff = INITIAL_BACKOFF if time.monotonic() - started > HEALTHY_AFTER else min(backoff * 2, MAX_BACKOFF)
            self._current.restarts += 1
            logger.error("%s; the next engine starts in %.1f s", self._current.stage, backoff)
            await asyncio.sleep(backoff)

    async def stop(self) -> None:
        """End the engine process; :meth:`run` returns."""
        self._closing = True
        if self._running is not None:
            await self._running.stop()

    async def _run_engine(self) -> None:
        engine = self._running = EngineProcess(
            self._options,
            step_timeout=self._step_timeout,
            on_stepped=self._outputs.on_stepped,
            on_refused=self._outputs.on_refused,
            on_loading=self._on_stage,
        )
        try:
            await engine.start()
            engine_info = await engine.ready()
            self._current.set(LoadedEngine(engine, engine_info))
            self._on_change()
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
            self._current.clear()
            self._on_change()
            await engine.stop()
            if not self._closing:
                self._current.stage = f"the engine process {engine.exit_description}"
                await self._release_jobs()

    def _on_stage(self, stage: str) -> None:
        self._current.stage = stage
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
