"""overhead: the service against the engine alone, on the real default model.

The same prompts, the same engine settings, both loaded at once and run in turns, so that what the machine does
otherwise falls on both. First tokens are measured by themselves, with short answers: a turn of the load has only one of
them at concurrency 1, and it moves by several milliseconds from one to the next on either side.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import quantiles
from typing import Any

from bench.load import chats
from bench.prompts import distinct_prompts
from bench.reference_engine import ReferenceEngine, engine_options
from bench.report import median_and_spread, save, table
from cli.bench.report import percentile
from shared.runtime.event_loop import run as run_loop
from tests.support.fleet import Fleet
from worker.model.local import resolve

TOKENS = 128
CONCURRENCIES = (1, 4, 8, 16, 32, 64)
PAIRS = 100
"""First tokens of each side; the median of so many differences moves by half a millisecond."""
_FEW = 4
"""Tokens of an answer of which the first one counts."""
_WARM_UP = 5
_PAUSE = 0.05
"""Seconds of rest before each of them: at concurrency 1, idle."""


def run(folder: Path, *, runs: int = 5, concurrencies: Sequence[int] = CONCURRENCIES) -> dict[str, Any]:
    """Measure, print the table, and return the result."""
    most = max(concurrencies)
    model = resolve("default")
    options = engine_options(model, max_batch=most)
    fleet = Fleet(folder, local=True)
    engine = ReferenceEngine(options)
    try:
        fleet.worker("--max-batch", str(most))
        fleet.api()
        rows = [_compare(fleet, engine, model.name, concurrency, runs) for concurrency in concurrencies]
        first = _first_tokens(fleet, engine, model.name)
    finally:
        engine.stop()
        fleet.stop()
    print(table(f"overhead: {TOKENS} tokens a request, greedy, medians of {runs} alternating runs", rows))
    print(table(f"first token of an idle service, {PAIRS} requests of each in turns: medians, and quartiles", [first]))
    save("overhead", {"rows": rows, "first": first})
    return {"rows": rows, "first": first}


def _compare(fleet: Fleet, engine: ReferenceEngine, model: str, concurrency: int, runs: int) -> dict[str, object]:
    ratios, rates, gap_ratios = [], [], []
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
        own = percentile(alone["gaps"], 0.99)
        gap_ratios.append(percentile([gap for stream in streams for gap in stream.gaps], 0.99) / own)
    ratio, least, most = median_and_spread(ratios)
    return {
        "concurrency": concurrency,
        "tokens/s": median_and_spread(rates)[0],
        "ratio to the engine alone": round(ratio, 3),
        "spread": f"{least:.3f}-{most:.3f}",
        "p99 gap, ratio": median_and_spread(gap_ratios)[0],
    }


def _first_tokens(fleet: Fleet, engine: ReferenceEngine, model: str) -> dict[str, object]:
    alone, service = [], []
    for turn in range(PAIRS + _WARM_UP):
        # Others than those of the load, which are in the caches.
        prompts = distinct_prompts(1000 + turn, 1)
        time.sleep(_PAUSE)
        alone.append(engine.run(prompts, _FEW, 1)["first"] * 1e3)
        time.sleep(_PAUSE)
        (stream,) = run_loop(chats(fleet.port, model, prompts, _FEW, 1))
        service.append((stream.first - stream.began) * 1e3)
    added = [one - other for one, other in zip(service, alone, strict=True)]
    return {
        name: "{1:.1f} ({0:.1f} to {2:.1f})".format(*quantiles(times[_WARM_UP:], n=4))
        for name, times in (("engine alone ms", alone), ("service ms", service), ("added ms", added))
    }
