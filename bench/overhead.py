"""overhead: the service against the engine alone, on the real default model.

The same prompts, the same engine settings, both loaded at once and run in turns, so that what the machine does
otherwise falls on both.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.alone import EngineAlone
from bench.fleet import Fleet
from bench.load import chats
from bench.prompts import distinct_prompts
from bench.report import median_and_spread, percentile, save, table
from shared.loops import run as run_loop
from shared.settings import EngineSettings
from worker.engine.options import EngineOptions
from worker.models import resolve

TOKENS = 128
CONCURRENCIES = (1, 4, 8, 16, 32, 64)


def run(folder: Path, *, runs: int = 5, concurrencies: Sequence[int] = CONCURRENCIES) -> dict[str, Any]:
    """Measure, print the table, and return the result."""
    most = max(concurrencies)
    settings = EngineSettings(max_batch=most)
    model = resolve("default")
    options = EngineOptions.from_settings(settings, path=str(model.path), context_length=model.context_length)
    fleet = Fleet(folder, local=True)
    engine = EngineAlone(options)
    try:
        fleet.worker("--max-batch", str(most))
        fleet.api()
        rows = [_compare(fleet, engine, model.name, concurrency, runs) for concurrency in concurrencies]
    finally:
        engine.stop()
        fleet.stop()
    print(table(f"overhead: {TOKENS} tokens a request, greedy, medians of {runs} alternating runs", rows))
    save("overhead", {"rows": rows})
    return {"rows": rows}


def _compare(fleet: Fleet, engine: EngineAlone, model: str, concurrency: int, runs: int) -> dict[str, object]:
    ratios, rates, added, gap_ratios = [], [], [], []
    for turn in range(runs + 1):
        prompts = distinct_prompts(turn, concurrency)
        alone = engine.run(prompts, TOKENS, concurrency)
        streams = run_loop(chats(fleet.port, model, prompts, TOKENS, concurrency))
        assert all(stream.complete for stream in streams)
        if turn == 0:
            continue
        seconds = max(stream.ended for stream in streams) - min(stream.began for stream in streams)
        rate = sum(stream.tokens for stream in streams) / seconds
        ratios.append(rate / (alone["tokens"] / alone["seconds"]))
        rates.append(rate)
        added.append((min(stream.first - stream.began for stream in streams) - alone["first"]) * 1000)
        own = percentile(alone["gaps"], 0.99)
        gap_ratios.append(percentile([gap for stream in streams for gap in stream.gaps], 0.99) / own)
    ratio, least, most = median_and_spread(ratios)
    return {
        "concurrency": concurrency,
        "tokens/s": median_and_spread(rates)[0],
        "ratio to the engine alone": round(ratio, 3),
        "spread": f"{least:.3f}-{most:.3f}",
        # With more at once, each side's first token waits for another number of prompts.
        "added TTFT ms": median_and_spread(added)[0] if concurrency == 1 else "",
        "p99 gap, ratio": median_and_spread(gap_ratios)[0],
    }
