"""logits: what the logits tap costs in the engine process, on the real default model.

Two engines are loaded at once, with the tap and without it, and run in turns. While no request needs logits, the tap
should cost nothing. If all ask for the most likely tokens, the tap should not cost more than the log probabilities of
the sampled tokens that the pipeline computes itself.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from bench.engine_load import EngineLoad
from bench.report import median_and_spread, ratios, save, table
from shared.protocol.request import Sampling
from shared.runtime.settings import EngineSettings
from worker.engine.options import EngineOptions
from worker.model.local import resolve

TOKENS = 64
SIZES = (1, 8, 32)
TOP = 20

_PLAIN = Sampling(temperature=0.0, seed=1, ignore_eos=True)
_OWN = Sampling(temperature=0.0, seed=1, ignore_eos=True, logprobs=True)
_TOP = Sampling(temperature=0.0, seed=1, ignore_eos=True, logprobs=True, top_logprobs=TOP)
_TAPPED, _UNTAPPED = "tapped", "untapped"
_LOADS = (
    ("untapped", _UNTAPPED, _PLAIN),
    ("tapped", _TAPPED, _PLAIN),
    ("untapped, own logprobs", _UNTAPPED, _OWN),
    ("tapped, top", _TAPPED, _TOP),
)
"""Names of what is measured, with the engine and the sampling."""


def run(folder: Path, *, runs: int = 15, sizes: Sequence[int] = SIZES) -> dict[str, Any]:
    """Measure, print the table, and return the result. ``folder`` is not used: nothing is written before the end."""
    rows = asyncio.run(_measure(runs, sizes))
    print(table(f"logits tap: {TOKENS} tokens each, medians of {runs} alternating runs", rows))
    save("logits", {"rows": rows})
    return {"rows": rows}


async def _measure(runs: int, sizes: Sequence[int]) -> list[dict[str, object]]:
    model = resolve("default")
    async with AsyncExitStack() as stack:
        engines = {}
        for name, logits in ((_TAPPED, "on"), (_UNTAPPED, "off")):
            settings = EngineSettings(max_batch=max(sizes), logits=logits)
            options = EngineOptions.from_settings(settings, path=str(model.path), context_length=model.context_length)
            engines[name] = await stack.enter_async_context(EngineLoad(options))
        return [await _row(engines, size, runs) for size in sizes]


async def _row(engines: dict[str, EngineLoad], size: int, runs: int) -> dict[str, object]:
    rates: dict[str, list[float]] = {name: [] for name, _, _ in _LOADS}
    for turn in range(runs + 1):
        for name, engine, sampling in _LOADS if turn % 2 else reversed(_LOADS):
            taken = await engines[engine].run(size, TOKENS, sampling)
            if turn:
                rates[name].append(size * TOKENS / taken.seconds)
    plain, tapped, own, top = rates.values()
    return {
        "batch": size,
        "tokens/s": median_and_spread(plain)[0],
        "tap unused, ratio": ratios(tapped, plain),
        f"all ask for top {TOP}, ratio to the pipeline's own logprobs": ratios(top, own),
    }
