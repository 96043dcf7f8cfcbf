"""Batches on one engine process, and the time that it takes for them."""

import itertools
import time
from types import TracebackType
from typing import Any, NamedTuple, Self

from msgspec.structs import replace

from shared.protocol.request import Sampling
from tests.support.engine_reports import ReportingEngine
from worker.engine.options import EngineOptions
from worker.engine.protocol import Gauges, Refused, Sequence

PROMPT_TOKENS = 24

_GREEDY = Sampling(temperature=0.0, seed=1, ignore_eos=True)


class Taken(NamedTuple):
    """Seconds in the model's steps and between them, and the number of steps."""

    computing: float
    between: float
    steps: int

    @property
    def seconds(self) -> float:
        """All of the time."""
        return self.computing + self.between


class EngineLoad:
    """Runs batches on an engine process, with no prompt twice. A context manager that owns the process."""

    def __init__(self, options: EngineOptions) -> None:
        self._engine = ReportingEngine(options)
        self._reports = self._engine.reports()
        self._numbers = itertools.count(1)
        self._before = Gauges(0, 0, 0.0, 0, 0)

    async def __aenter__(self) -> Self:
        """Load the model."""
        await self._engine.start()
        try:
            await self._engine.loaded()
        except BaseException:
            await self._engine.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process."""
        await self._engine.stop()

    async def run(self, batch: int, tokens: int, sampling: Sampling = _GREEDY, **fields: Any) -> Taken:
        """Generate ``tokens`` tokens for each of ``batch`` prompts at once; ``fields`` are those of sequences."""
        began = time.monotonic()
        for _ in range(batch):
            number = next(self._numbers)
            prompt = tuple(300 + (number * 7919 + at * 104_729) % 40_000 for at in range(PROMPT_TOKENS))
            sampled = replace(sampling, max_tokens=tokens)
            self._engine.add(Sequence(number=number, prompt=prompt, sampling=sampled, **fields))
        left = batch
        async for report in self._reports:
            if isinstance(report, Refused):
                raise AssertionError(f"refused: {report.problem.message}")
            left -= sum(output.reason is not None for output in report.outputs)
            # At rest the engine reports once more, without outputs.
            if not left and not report.outputs:
                before, self._before = self._before, report.gauges
                now = report.gauges
                steps = now.steps - before.steps
                return Taken(now.step_seconds - before.step_seconds, now.host_seconds - before.host_seconds, steps)
        raise AssertionError(f"the engine {self._engine.exit_description} after {time.monotonic() - began:.1f} s")
