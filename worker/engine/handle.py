"""The supervisor's side of the engine process: its handle, the current engine, and the replacement of one that dies."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from shared.protocol.registry import WorkerStatus
from shared.runtime.ticks import Backoff, next_tick
from worker.engine.host import memory_limit
from worker.engine.options import EngineOptions
from worker.engine.protocol import (
    Add,
    Cancel,
    Command,
    EngineInfo,
    EngineSequence,
    Gauges,
    Loading,
    Preempt,
    RawEngineReport,
    RawStep,
    Ready,
    SequenceRefused,
    Stepped,
)
from worker.engine.unchanged import ModelChanged
from worker.engine.watchdog import PIXELS_PER_SECOND, PREFILL_RATE, Watchdog
from worker.model.files import PROCESSES
from worker.model.header import loaded_bytes
from worker.processes.child import ChildProcess, CpuTime, LoadError

logger = logging.getLogger(__name__)

CHECK_INTERVAL = 1 / 3
"""Seconds between two checks of the watchdog."""

_BACKOFF = (0.1, 30.0)
"""First and longest pause in seconds before the engine is restarted."""

_NO_GAUGES = Gauges(requests=0, scheduled=0, cache_usage=0.0, steps=0, tokens=0)


class EngineProcess(ChildProcess[RawEngineReport, Command, Ready]):
    """One engine process, from start to end.

    Call :meth:`start` and :meth:`loaded`, then :meth:`add` and :meth:`cancel`. Always call :meth:`stop` in the end.
    """

    def __init__(
        self,
        options: EngineOptions,
        *,
        step_timeout: float,
        on_stepped: Callable[[RawStep], None],
        on_refused: Callable[[SequenceRefused], None],
        on_loading: Callable[[str], None],
    ) -> None:
        """``step_timeout`` is the maximum duration of a step in seconds (see :mod:`worker.engine.watchdog`).

        ``on_stepped`` and ``on_refused`` are called with reports about sequences, ``on_loading`` with each stage of
        loading, human-readable.
        """
        decoder = msgspec.msgpack.Decoder(RawEngineReport)
        super().__init__(
            "worker.engine.child", options, decoder, name="engine process", ready=Ready, on_message=self._on_report
        )
        self._on_stepped = on_stepped
        self._on_refused = on_refused
        self._on_loading = on_loading
        self.watchdog = Watchdog(step_timeout)
        self._whole_prompts = options.whole_prompts

    async def start(self) -> None:
        """Start the process. Raises :class:`OSError` when that fails."""
        await super().start()
        if self.pid is not None:
            self.watchdog.cpu_time = CpuTime(self.pid).usable

    def add(self, sequence: EngineSequence) -> None:
        """Start a sequence. Its outputs, or its refusal, arrive as reports."""
        pixels = sum(image.width * image.height for image in sequence.images)
        tokens = len(sequence.prompt) + len(sequence.generated)
        whole = tokens / PREFILL_RATE if self._whole_prompts else 0.0
        self.watchdog.add(sequence.number, tokens, encoding=pixels / PIXELS_PER_SECOND + whole)
        self.send(Add(sequence))

    def cancel(self, number: int) -> None:
        """Remove a sequence. Earlier outputs may still arrive; the removal is not confirmed."""
        self.send(Cancel(number))
        self.watchdog.discard(number)

    def preempt(self, numbers: Iterable[int]) -> None:
        """Preempt these sequences and resume all others. Another sequence must run until they are resumed."""
        self.send(Preempt(tuple(numbers)))

    def _on_report(self, report: RawEngineReport) -> None:
        if isinstance(report, Stepped):
            self.watchdog.on_report(output.number for output in report.outputs)
            for output in report.outputs:
                if output.reason is not None:
                    self.watchdog.discard(output.number)
            self._on_stepped(report)
        elif isinstance(report, SequenceRefused):
            self.watchdog.on_report(())
            self.watchdog.discard(report.number)
            self._on_refused(report)
        elif isinstance(report, Loading):
            self._on_loading(report.stage)


class LoadedEngine(NamedTuple):
    """An engine process with a loaded model."""

    process: EngineProcess
    info: EngineInfo


class CurrentEngine:
    """The current engine, if one is loaded. Between the end of one and the next, jobs wait in :meth:`wait`."""

    def __init__(self, *, slots: int, note: str = "") -> None:
        """``slots`` is the number of slots to report until an engine is loaded, ``note`` the end of each stage."""
        self.note = note
        self._loaded: LoadedEngine | None = None
        self._arrived = asyncio.Event()
        self.slots = slots
        """Slots of the current engine, or of the last one."""
        self.gauges = _NO_GAUGES
        self.restarts = 0
        self.stage = "starting"
        """Human-readable: the stage of loading, or why no engine is loaded. Empty while one is."""

    @property
    def info(self) -> EngineInfo | None:
        """Properties of the current engine; None while none is loaded."""
        return self._loaded.info if self._loaded else None

    @property
    def capacity(self) -> int:
        """How many jobs may run now: 0 while no engine is loaded."""
        return self.slots if self._loaded else 0

    @property
    def status(self) -> WorkerStatus:
        """``failing`` from the end of an engine until the next one is loaded."""
        if self._loaded:
            return "serving"
        return "failing" if self.restarts else "loading"

    async def wait(self) -> LoadedEngine:
        """Return the current engine, as soon as there is one."""
        while self._loaded is None:
            await self._arrived.wait()
        return self._loaded

    def set(self, loaded: LoadedEngine) -> None:
        """Run jobs in ``loaded`` from now on."""
        self._loaded = loaded
        self.slots = loaded.info.slots
        self.gauges = _NO_GAUGES
        self.stage = ""
        self._arrived.set()

    def clear(self) -> None:
        """Record that no engine is loaded."""
        self._loaded = None
        self.gauges = _NO_GAUGES
        self._arrived.clear()


@dataclass(slots=True, eq=False)
class EngineSupervisor:
    """Owns the worker's engine process, and keeps :class:`CurrentEngine` up to date."""

    options: EngineOptions
    current: CurrentEngine
    step_timeout: float
    """Maximum duration of a step in seconds (see :mod:`worker.engine.watchdog`)."""
    on_stepped: Callable[[RawStep], None]
    on_refused: Callable[[SequenceRefused], None]
    on_change: Callable[[], None]
    """Called when an engine becomes ready, and when it ends."""
    release_jobs: Callable[[], Awaitable[None]]
    """Called after an engine has crashed, to return its jobs to the queue."""
    others_loaded: Callable[[], Awaitable[None]]
    """Waits for what an engine can't serve without."""
    check_model: Callable[[str, str], None]
    """Called when an engine has loaded, with its digest of the vocabulary and its fingerprint, or "" twice when it
    couldn't load. Raises :class:`~worker.engine.unchanged.ModelChanged` if the model is another one than before."""
    _running: EngineProcess | None = None
    _closing: bool = False

    async def run(self) -> None:
        """Run engine processes, one after the other, until cancelled or stopped.

        Raises :class:`LoadError` when the first one can't be loaded: the settings are at fault then.
        """
        backoff = Backoff(*_BACKOFF)
        while True:
            started = time.monotonic()
            try:
                await self._run_engine()
            except ModelChanged as change:
                logger.error("the engine process can't continue: %s", change)
                return
            except LoadError as error:
                self.current.stage = self._explained(str(error))
                if self.current.restarts == 0:
                    raise LoadError(self.current.stage) from None
            if self._closing:
                return
            pause = backoff.pause(time.monotonic() - started)
            self.current.restarts += 1
            logger.error("%s; the next engine starts in %.1f s", self.current.stage, pause)
            await asyncio.sleep(pause)

    async def stop(self) -> None:
        """End the engine process; :meth:`run` returns."""
        self._closing = True
        if self._running is not None:
            await self._running.stop()

    async def _run_engine(self) -> None:
        engine = self._running = EngineProcess(
            self.options,
            step_timeout=self.step_timeout,
            on_stepped=self.on_stepped,
            on_refused=self.on_refused,
            on_loading=self._on_stage,
        )
        try:
            await engine.start()
            try:
                engine_info = (await engine.loaded()).engine_info
            except LoadError:
                self.check_model("", "")
                raise
            self.check_model(engine_info.vocabulary, engine_info.fingerprint)
            await self.others_loaded()
            self.current.set(LoadedEngine(engine, engine_info))
            self.on_change()
            logger.info(
                "engine ready in %.1f s: %s (%s) on %s, context %d tokens, KV cache %d tokens, batches of %d",
                engine_info.load_seconds,
                engine_info.engine,
                engine_info.reason,
                engine_info.device,
                engine_info.context_length,
                engine_info.cache_tokens,
                engine_info.slots,
            )
            await self._watch(engine)
        finally:
            self.current.clear()
            self.on_change()
            await engine.stop()
            if not self._closing:
                self.current.stage = self._explained(f"the engine process {engine.exit_description}")
                await self.release_jobs()

    def _explained(self, ending: str) -> str:
        """Add to how the engine process ended what the kernel probably killed it for."""
        limit = memory_limit()
        if not limit or "SIGKILL" not in ending:
            return ending
        path = Path(self.options.path)
        need = PROCESSES + (loaded_bytes(path) if path.exists() else 0)
        return (
            f"{ending}, perhaps for memory: this container or service may use {limit / 2**20:.0f} MB (WORKER_MEMORY in "
            f"compose.yaml), and the worker needs about {need / 2**20:.0f} MB, besides its KV cache of up to "
            f"{self.options.cache_size} GB (--cache-size)"
        )

    def _on_stage(self, stage: str) -> None:
        self.current.stage = f"{stage}{self.current.note}"
        logger.info("engine: %s", self.current.stage)

    async def _watch(self, engine: EngineProcess) -> None:
        watchdog = asyncio.create_task(self._watchdog(engine), name="engine watchdog")
        try:
            await engine.ended()
        finally:
            watchdog.cancel()

    async def _watchdog(self, engine: EngineProcess) -> None:
        while True:
            await asyncio.sleep(next_tick(min(CHECK_INTERVAL, self.step_timeout / 10)))
            silence, timeout = engine.watchdog.silence(), engine.watchdog.timeout
            if silence > timeout:
                logger.error("engine hung: no step for %.1f s; replacing it", silence)
                engine.kill()
                return
