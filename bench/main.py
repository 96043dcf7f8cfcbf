"""The parts of ``make bench``, by name."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import dispatch, overhead, plumbing

PARTS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "overhead": overhead.run,
    "plumbing": plumbing.run,
    "dispatch": dispatch.run,
}


def run(names: tuple[str, ...]) -> dict[str, Any]:
    """Run the parts called ``names``, or all; each prints its table and writes its JSON file."""
    results = {}
    for name in names or tuple(PARTS):
        with tempfile.TemporaryDirectory(prefix="vinoqueue-bench-") as folder:
            results[name] = PARTS[name](Path(folder))
    return results
