"""The engine's process as the supervisor sees it. There is no restart here: a dead one is replaced as a whole."""

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

    Call :meth:`start`, :meth:`ready`, then :meth:`run` in one task while others :meth:`add` and :meth:`cancel`; at last
    :meth:`stop`, whatever happened before.
    """

    def __init__(
        self,
        options: EngineOptions,
        on_loading: Callable[[str], None] | None = None,
        *,
        step_timeout: float,
    ) -> None:
        """``on_loading`` is called with each stage of loading, for people; ``step_timeout`` is the most seconds that a
        step may take (see :mod:`worker.watchdog`)."""
        decoder: msgspec.msgpack.Decoder[RawEngineReport] = msgspec.msgpack.Decoder(RawEngineReport)
        self._child: Child[RawEngineReport, Command] = Child(
            "worker.engine.child", [msgspec.json.encode(options).decode()], decoder
        )
        self._on_loading = on_loading
        self.watchdog = Watchdog(step_timeout)
        self.idle_since: float | None = time.monotonic()
        """Since when it has had no sequence (monotonic seconds); None while it has one."""
        self.exit_code: int | None = None
        """Set when :meth:`run` has ended or :meth:`stop` was called; negative: the signal that ended it."""

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

        Raises :class:`EngineLoadError` when it can't be, or when the process ends before.
        """
        # What it says next answers commands, and none has been sent yet: nothing comes behind the engine_info.
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
        """Start a sequence; its outputs, or its refusal, come with the reports."""
        self.watchdog.add(sequence.number, len(sequence.prompt) + len(sequence.generated))
        self.idle_since = None
        self._child.send(Add(sequence))

    def cancel(self, number: int) -> None:
        """Drop a sequence. Outputs that were made before may still come; nothing tells the end."""
        self._child.send(Cancel(number))
        self._discard(number)

    async def run(self, on_stepped: Callable[[RawStep], None], on_refused: Callable[[Refused], None]) -> None:
        """Call one or the other with what the engine says after :meth:`ready`, until the process ends, by itself or by
        force. Raises what they raise."""

        def hear(report: RawEngineReport) -> None:
            if isinstance(report, Stepped):
                self.watchdog.heard(output.number for output in report.outputs)
                for output in report.outputs:
                    if output.reason is not None:
                        self._discard(output.number)
                on_stepped(report)
            elif isinstance(report, Refused):
                self.watchdog.heard(())
                self._discard(report.number)
                on_refused(report)

        await self._child.listen(hear)
        await self.stop()

    async def stop(self, patience: float = 2.0) -> None:
        """End the process: after its step, or by force after ``patience`` seconds. May be called more than once."""
        self._child.send(Quit())
        self.exit_code = await self._child.stop(patience)

    def kill(self) -> None:
        """End the process at once; :meth:`run` ends then."""
        self._child.kill()

    @property
    def exit_description(self) -> str:
        """How it ended, to stand behind "the engine process"."""
        if self.exit_code is None:
            return "is running"
        if self.exit_code >= 0:
            return f"ended with exit code {self.exit_code}"
        return f"was killed by {signal.Signals(-self.exit_code).name}"

    def _discard(self, number: int) -> None:
        self.watchdog.discard(number)
        if not self.watchdog.busy and self.idle_since is None:
            self.idle_since = time.monotonic()
