"""The supervisor's handle of one engine process. It is never restarted; a new handle replaces it."""

import signal
import time
from collections.abc import Callable

import msgspec

from worker.cpu_time import CpuTime
from worker.engine.interface import (
    Add,
    Cancel,
    Command,
    EngineInfo,
    EngineLoadError,
    LoadFailed,
    Loading,
    Quit,
    RawEngineReport,
    RawStep,
    Ready,
    Refused,
    Sequence,
    Stepped,
)
from worker.engine.options import EngineOptions
from worker.ipc import Child
from worker.watchdog import Watchdog


class EngineProcess:
    """One engine process, from start to end.

    Call :meth:`start`, :meth:`ready`, then :meth:`run` in one task while others call :meth:`add` and :meth:`cancel`.
    Always call :meth:`stop` in the end.
    """

    def __init__(
        self,
        options: EngineOptions,
        on_loading: Callable[[str], None] | None = None,
        *,
        step_timeout: float,
    ) -> None:
        """``on_loading`` is called with each stage of loading, human-readable. ``step_timeout`` is the maximum duration
        of a step in seconds (see :mod:`worker.watchdog`).
        """
        decoder: msgspec.msgpack.Decoder[RawEngineReport] = msgspec.msgpack.Decoder(RawEngineReport)
        self._child: Child[RawEngineReport, Command] = Child(
            "worker.engine.child", [msgspec.json.encode(options).decode()], decoder
        )
        self._on_loading = on_loading
        self.watchdog = Watchdog(step_timeout)
        self.idle_since: float | None = time.monotonic()
        """When it became idle (``time.monotonic``); None while it has sequences."""
        self.exit_code: int | None = None
        """Set once :meth:`run` or :meth:`stop` has returned. Negative: the signal that killed the process."""

    @property
    def pid(self) -> int | None:
        """Process id, once started."""
        return self._child.pid

    async def start(self) -> None:
        """Start the process. Raises :class:`OSError` when that fails."""
        await self._child.start()
        if self.pid is not None:
            self.watchdog.cpu_time = CpuTime(self.pid).of

    async def ready(self) -> EngineInfo:
        """Wait until the model is loaded.

        Raises :class:`EngineLoadError` when it can't be loaded, or when the process dies meanwhile.
        """
        # No command was sent yet, so no report follows Ready that this loop would lose.
        async for report in self._child.messages():
            match report:
                case Loading(stage):
                    if self._on_loading is not None:
                        self._on_loading(stage)
                case Ready(engine_info):
                    return engine_info
                case LoadFailed(message):
                    raise EngineLoadError(message)
        await self.stop()
        raise EngineLoadError(f"the engine process {self.exit_description} while it loaded the model")

    def add(self, sequence: Sequence) -> None:
        """Start a sequence. Its outputs, or its refusal, arrive as reports."""
        self.watchdog.add(sequence.number, len(sequence.prompt) + len(sequence.generated))
        self.idle_since = None
        self._child.send(Add(sequence))

    def cancel(self, number: int) -> None:
        """Remove a sequence. Earlier outputs may still arrive; the removal is not confirmed."""
        self._child.send(Cancel(number))
        self._discard(number)

    async def run(self, on_stepped: Callable[[RawStep], None], on_refused: Callable[[Refused], None]) -> None:
        """Pass reports to the callbacks until the process ends or is killed. Raises what the callbacks raise."""

        def on_report(report: RawEngineReport) -> None:
            if isinstance(report, Stepped):
                self.watchdog.on_report(output.number for output in report.outputs)
                for output in report.outputs:
                    if output.reason is not None:
                        self._discard(output.number)
                on_stepped(report)
            elif isinstance(report, Refused):
                self.watchdog.on_report(())
                self._discard(report.number)
                on_refused(report)

        await self._child.listen(on_report)
        await self.stop()

    async def stop(self, patience: float = 2.0) -> None:
        """End the process after its current step; kill it after ``patience`` seconds. May be called more than once."""
        self._child.send(Quit())
        self.exit_code = await self._child.stop(patience)

    def kill(self) -> None:
        """Kill the process, which ends :meth:`run`."""
        self._child.kill()

    @property
    def exit_description(self) -> str:
        """How it ended, to complete a sentence that starts with "the engine process"."""
        if self.exit_code is None:
            return "is running"
        if self.exit_code >= 0:
            return f"ended with exit code {self.exit_code}"
        return f"was killed by {signal.Signals(-self.exit_code).name}"

    def _discard(self, number: int) -> None:
        self.watchdog.discard(number)
        if not self.watchdog.busy and self.idle_since is None:
            self.idle_since = time.monotonic()
