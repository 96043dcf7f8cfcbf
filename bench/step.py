"""step: what the engine's process does between two steps of the model, as a share of its time.

Reading what the model has made, turning it into text, finding stop strings and sending it to the supervisor all hold
up the next step, because the pipeline's calls hold Python's lock and stand in one thread.
"""

import asyncio
import itertools
import statistics
import time
from collections.abc import Sequence as Series
from pathlib import Path
from typing import Any

from bench.report import median_and_spread, save, table
from shared.protocol.request import Sampling
from shared.runtime.settings import EngineSettings
from tests.support.engine_reports import ReportingEngine
from worker.engine.interface import Gauges, Refused, Sequence
from worker.engine.options import EngineOptions
from worker.model.local import resolve

TOKENS = 128
PROMPT_TOKENS = 24
BATCHES = (1, 8, 32)


def run(folder: Path, *, runs: int = 5, batches: Series[int] = BATCHES) -> dict[str, Any]:
    """Measure, print the table, and return the result. ``folder`` is not used: nothing is written before the end."""
    rows = asyncio.run(_measure(runs, batches))
    print(table(f"step: between two steps of the model, {TOKENS} tokens each, medians of {runs} runs", rows))
    save("step", {"rows": rows})
    return {"rows": rows}


async def _measure(runs: int, batches: Series[int]) -> list[dict[str, object]]:
    settings = EngineSettings(max_batch=max(batches))
    model = resolve("default")
    options = EngineOptions.from_settings(settings, path=str(model.path), context_length=model.context_length)
    engine = ReportingEngine(options)
    await engine.start()
    try:
        await engine.ready()
        load = _Load(engine)
        taken: dict[int, list[tuple[float, float, float]]] = {batch: [] for batch in batches}
        for turn in range(runs + 1):
            for batch in batches:
                measured = await load.run(batch)
                if turn:
                    taken[batch].append(measured)
    finally:
        await engine.stop()
    rows: list[dict[str, object]] = []
    for batch, measurements in taken.items():
        shares = [between / (computing + between) for computing, between, _ in measurements]
        share, least, most = median_and_spread(shares)
        rows.append(
            {
                "batch": batch,
                "step ms": statistics.median(computing / steps for computing, _, steps in measurements) * 1e3,
                "between µs": statistics.median(between / steps for _, between, steps in measurements) * 1e6,
                "share": f"{share:.2%}",
                "spread": f"{least:.2%}-{most:.2%}",
            }
        )
    return rows


class _Load:
    """Runs batches on one engine, with no prompt twice."""

    def __init__(self, engine: ReportingEngine) -> None:
        self._engine = engine
        self._reports = engine.reports()
        self._numbers = itertools.count(1)
        self._before = Gauges(0, 0, 0.0, 0, 0, 0)

    async def run(self, batch: int) -> tuple[float, float, float]:
        """Generate for ``batch`` prompts at once; return the seconds of computing and between, and the steps."""
        began = time.monotonic()
        for _ in range(batch):
            number = next(self._numbers)
            prompt = tuple(300 + (number * 7919 + at * 104_729) % 40_000 for at in range(PROMPT_TOKENS))
            sampling = Sampling(temperature=0.0, seed=1, max_tokens=TOKENS, ignore_eos=True)
            self._engine.add(Sequence(number=number, prompt=prompt, sampling=sampling))
        left = batch
        async for report in self._reports:
            if isinstance(report, Refused):
                raise AssertionError(f"refused: {report.problem.message}")
            left -= sum(output.reason is not None for output in report.outputs)
            # At rest the engine reports once more, without outputs.
            if not left and not report.outputs:
                before, self._before = self._before, report.gauges
                now = report.gauges
                return now.computing - before.computing, now.between - before.between, float(now.steps - before.steps)
        raise AssertionError(f"the engine {self._engine.exit_description} after {time.monotonic() - began:.1f} s")
