"""The parts of ``make bench``, by name."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import (
    batch,
    capacity,
    curves,
    dispatch,
    overhead,
    plumbing,
    prefill,
    prefix,
    regressions,
    scale,
    step,
    streams,
    tuning,
    weights,
)
from bench.peers import comparison as peers

PARTS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "overhead": overhead.run,
    "plumbing": plumbing.run,
    "dispatch": dispatch.run,
    "streams": streams.run,
    "scale": scale.run,
    "capacity": capacity.run,
    "step": step.run,
    "tuning": tuning.run,
    "weights": weights.run,
    "prefill": prefill.run,
    "prefix": prefix.run,
    "batch": batch.run,
    "regressions": regressions.run,
    "peers": peers.run,
    "curves": curves.run,
}

BY_NAME = ("tuning", "weights", "peers", "curves")
"""Parts that run only when named: they take long, or need what is not installed."""


def run(names: tuple[str, ...]) -> dict[str, Any]:
    """Run the parts called ``names``, or all but :data:`BY_NAME`; each prints its table and writes its JSON file."""
    results = {}
    for name in names or tuple(name for name in PARTS if name not in BY_NAME):
        with tempfile.TemporaryDirectory(prefix="vinoqueue-bench-") as folder:
            results[name] = PARTS[name](Path(folder))
    return results
