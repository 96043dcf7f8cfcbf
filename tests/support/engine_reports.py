"""An engine process whose reports are iterated over."""

import asyncio
from collections.abc import AsyncIterator, Callable

from msgspec.structs import replace

from worker.engine.handle import EngineProcess
from worker.engine.options import EngineOptions
from worker.engine.protocol import RawStep, SequenceRefused


class ReportingEngine(EngineProcess):
    """An engine process that keeps its reports for :meth:`reports`."""

    def __init__(self, options: EngineOptions, on_loading: Callable[[str], None] = lambda stage: None) -> None:
        self._reports: asyncio.Queue[RawStep | SequenceRefused | None] = asyncio.Queue()
        super().__init__(
            options,
            step_timeout=60,
            on_stepped=self._keep,
            on_refused=self._reports.put_nowait,
            on_loading=on_loading,
        )

    async def reports(self) -> AsyncIterator[RawStep | SequenceRefused]:
        """Yield the reports until the process ends."""
        ended = asyncio.create_task(self.ended())
        ended.add_done_callback(lambda _: self._reports.put_nowait(None))
        try:
            while (report := await self._reports.get()) is not None:
                yield report
            await ended
            await self.stop()
        finally:
            ended.cancel()

    def _keep(self, report: RawStep) -> None:
        # The encoded deltas lie in memory that the next read overwrites.
        outputs = tuple(replace(output, delta=output.delta.copy()) for output in report.outputs)
        self._reports.put_nowait(replace(report, outputs=outputs))
