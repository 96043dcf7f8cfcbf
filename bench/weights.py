"""weights: what formats of the weights are worth: tokens/s, size, time to load, and perplexity.

The default model as it is (a GGUF file), and converted by ``vinoqueue model convert``. All ratios are to the GGUF file,
measured in the same run.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.report import ratios, save, table
from bench.turns import rates_in_turns
from shared.runtime.settings import EngineSettings
from worker.convert.conversion import Conversion, convert
from worker.engine.options import EngineOptions
from worker.model.local import ModelError, resolve
from worker.weights.compression import PER_CHANNEL, Weights, check_tools

TOKENS = 128
BATCHES = (1, 8, 32)
FORMATS = (
    Weights(format="int8"),
    Weights(group=32),
    Weights(group=32, small_ends=True),
    Weights(group=64),
    Weights(group=PER_CHANNEL),
)
_GGUF = "GGUF"
_LOADED_AT_ONCE = 3
"""Maximum number of converted models in memory at a time, in addition to the GGUF file."""


def run(folder: Path, *, runs: int = 5, formats: Sequence[Weights] = FORMATS) -> dict[str, Any]:
    """Convert to ``formats`` in ``folder``, measure, print the table, and return the result."""
    try:
        for weights in formats:
            check_tools(weights)
    except ModelError as error:
        print(f"\nweights is left out. {error}")
        return {"rows": []}
    rows: list[dict[str, object]] = []
    for first in range(0, len(formats), _LOADED_AT_ONCE):
        rows += _compare(folder, formats[first : first + _LOADED_AT_ONCE], runs)
    print(table(f"weights: ratios to the GGUF file, {TOKENS} tokens each, medians of {runs} turns", rows))
    save("weights", {"rows": rows})
    return {"rows": rows}


def _compare(folder: Path, formats: Sequence[Weights], runs: int) -> list[dict[str, object]]:
    model = resolve("default")
    done = {
        str(weights): convert("default", folder / str(at), weights, max_perplexity_ratio=math.inf, replace=True)
        for at, weights in enumerate(formats)
    }
    paths = {_GGUF: model.path} | {name: conversion.folder for name, conversion in done.items()}
    settings = EngineSettings(max_batch=max(BATCHES), weights="original")
    options = {
        name: EngineOptions.from_settings(settings, path=str(path), context_length=model.context_length)
        for name, path in paths.items()
    }
    rates = rates_in_turns(options, batches=BATCHES, tokens=TOKENS, runs=runs)
    return [_row(name, conversion, rates) for name, conversion in done.items()]


def _row(name: str, conversion: Conversion, rates: dict[str, dict[int, list[float]]]) -> dict[str, object]:
    before, after = conversion.original, conversion.converted
    row: dict[str, object] = {
        "weights": name,
        "MB": round(after.size / 1e6),
        "time to load": after.load_seconds / before.load_seconds,
        "perplexity": round(conversion.perplexity_ratio, 3),
    }
    for batch in BATCHES:
        row[f"at {batch}"] = ratios(rates[name][batch], rates[_GGUF][batch])
    return row
