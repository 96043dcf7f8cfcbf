"""step: what the engine's process does between two steps of the model, as a share of its time.

Reading what the model has made, turning it into text, finding stop strings and sending it to the supervisor all hold
up the next step, because the pipeline's calls hold Python's lock and stand in one thread.
"""

import asyncio
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.engine_load import EngineLoad, Taken
from bench.report import median_and_spread, save, table
from shared.runtime.settings import EngineSettings
from worker.engine.options import EngineOptions
from worker.model.local import resolve

TOKENS = 128
BATCHES = (1, 8, 32)


def run(folder: Path, *, runs: int = 5, batches: Sequence[int] = BATCHES) -> dict[str, Any]:
    """Measure, print the table, and return the result. ``folder`` is not used: nothing is written before the end."""
    rows = asyncio.run(_measure(runs, batches))
    print(table(f"step: between two steps of the model, {TOKENS} tokens each, medians of {runs} runs", rows))
    save("step", {"rows": rows})
    return {"rows": rows}


async def _measure(runs: int, batches: Sequence[int]) -> list[dict[str, object]]:
    settings = EngineSettings(max_batch=max(batches))
    model = resolve("default")
    options = EngineOptions.from_settings(settings, path=str(model.path), context_length=model.context_length)
    taken: dict[int, list[Taken]] = {batch: [] for batch in batches}
    async with EngineLoad(options) as load:
        for turn in range(runs + 1):
            for batch in batches:
                measured = await load.run(batch, TOKENS)
                if turn:
                    taken[batch].append(measured)
    rows: list[dict[str, object]] = []
    for batch, measurements in taken.items():
        share, least, most = median_and_spread([one.between / one.seconds for one in measurements])
        rows.append(
            {
                "batch": batch,
                "step ms": statistics.median(one.computing / one.steps for one in measurements) * 1e3,
                "between µs": statistics.median(one.between / one.steps for one in measurements) * 1e6,
                "share": f"{share:.2%}",
                "spread": f"{least:.2%}-{most:.2%}",
            }
        )
    return rows
