"""The supervisor's handle of one engine process. It is never restarted; a new handle replaces it."""

import time
from collections.abc import Callable, Iterable

import msgspec

from worker.engine.interface import (
    Add,
    Cancel,
    Command,
    EngineInfo,
    EngineLoadError,
    Loading,
    Preempt,
    RawEngineReport,
    RawStep,
    Ready,
    Refused,
    Sequence,
    Stepped,
)
from worker.engine.options import EngineOptions
from worker.engine.watchdog import Watchdog
from worker.processes.cpu_time import CpuTime
from worker.processes.process import ChildProcess, LoadError

_PIXELS_PER_SECOND = 2**14
"""Minimum rate at which a slow CPU encodes images. A slower encoder counts as hung."""


class EngineProcess:
    """One engine process, from start to end.

    Call :meth:`start` and :meth:`ready`, then :meth:`add` and :meth:`cancel`. Always call :meth:`stop` in the end.
    """

    def __init__(
        self,
        options: EngineOptions,
        *,
        step_timeout: float,
        on_stepped: Callable[[RawStep], None],
        on_refused: Callable[[Refused], None],
        on_loading: Callable[[str], None],
    ) -> None:
        """``step_timeout`` is the maximum duration of a step in seconds (see :mod:`worker.engine.watchdog`).

        ``on_stepped`` and ``on_refused`` are called with reports about sequences, ``on_loading`` with each stage of
        loading, human-readable.
        """
        self._child: ChildProcess[RawEngineReport, Command, Ready] = ChildProcess(
            "worker.engine.child",
            options,
            msgspec.msgpack.Decoder(RawEngineReport),
            name="engine process",
            ready=Ready,
            on_message=self._on_report,
        )
        self._on_stepped = on_stepped
        self._on_refused = on_refused
        self._on_loading = on_loading
        self.watchdog = Watchdog(step_timeout)
        self.idle_since: float | None = time.monotonic()
        """When it became idle (``time.monotonic``); None while it has sequences."""

    @property
    def pid(self) -> int | None:
        """Process id, once started."""
        return self._child.pid

    @property
    def exit_code(self) -> int | None:
        """Known once :meth:`ended` or :meth:`stop` has returned. Negative: the signal that killed the process."""
        return self._child.exit_code

    @property
    def exit_description(self) -> str:
        """How it ended, to complete a sentence that starts with "the engine process"."""
        return self._child.exit_description

    async def start(self) -> None:
        """Start the process. Raises :class:`OSError` when that fails."""
        await self._child.start()
        if self.pid is not None:
            self.watchdog.cpu_time = CpuTime(self.pid).usable

    async def ready(self) -> EngineInfo:
        """Wait until the model is loaded.

        Raises :class:`EngineLoadError` when it can't be loaded, or when the process dies meanwhile.
        """
        try:
            return (await self._child.loaded()).engine_info
        except LoadError as error:
            raise EngineLoadError(str(error)) from error

    def add(self, sequence: Sequence) -> None:
        """Start a sequence. Its outputs, or its refusal, arrive as reports."""
        pixels = sum(image.width * image.height for image in sequence.images)
        self.watchdog.add(
            sequence.number, len(sequence.prompt) + len(sequence.generated), encoding=pixels / _PIXELS_PER_SECOND
        )
        self.idle_since = None
        self._child.send(Add(sequence))

    def cancel(self, number: int) -> None:
        """Remove a sequence. Earlier outputs may still arrive; the removal is not confirmed."""
        self._child.send(Cancel(number))
        self._discard(number)

    def preempt(self, numbers: Iterable[int]) -> None:
        """Preempt these sequences and resume all others. Another sequence must run until they are resumed."""
        self._child.send(Preempt(tuple(numbers)))

    async def ended(self) -> None:
        """Wait until the process ends or is killed. Raises what the callbacks raise."""
        await self._child.ended()
        await self.stop()

    async def stop(self, patience: float = 2.0) -> None:
        """End the process after its current step; kill it after ``patience`` seconds. May be called more than once."""
        await self._child.stop(patience)

    def kill(self) -> None:
        """Kill the process, which ends :meth:`ended`."""
        self._child.kill()

    def _on_report(self, report: RawEngineReport) -> None:
        if isinstance(report, Stepped):
            self.watchdog.on_report(output.number for output in report.outputs)
            for output in report.outputs:
                if output.reason is not None:
                    self._discard(output.number)
            self._on_stepped(report)
        elif isinstance(report, Refused):
            self.watchdog.on_report(())
            self._discard(report.number)
            self._on_refused(report)
        elif isinstance(report, Loading):
            self._on_loading(report.stage)

    def _discard(self, number: int) -> None:
        self.watchdog.discard(number)
        if not self.watchdog.busy and self.idle_since is None:
            self.idle_since = time.monotonic()
