"""The parts of ``make bench``, by name."""

import inspect
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import batch, capacity, embed, fairness, forms, overhead, prefix, regressions, start
from bench.fidelity import comparison as fidelity
from bench.peers import comparison as peers

PARTS: dict[str, Callable[..., dict[str, Any]]] = {
    "overhead": overhead.run,
    "capacity": capacity.run,
    "prefix": prefix.run,
    "batch": batch.run,
    "fairness": fairness.run,
    "fidelity": fidelity.run,
    "regressions": regressions.run,
    "embed": embed.run,
    "forms": forms.run,
    "start": start.run,
    "memory": start.memory,
    "peers": peers.run,
}

BY_NAME = ("forms", "peers")
"""Parts that run only when named: they are about a model, or need what is not installed."""


class UnknownOption(ValueError):
    """A part does not have an option. The message names both."""


def run(names: tuple[str, ...], **options: Any) -> dict[str, Any]:
    """Run the parts called ``names``, or all but :data:`BY_NAME`; each prints its table and writes its JSON file.

    ``options`` are parameters of parts. Raises :class:`UnknownOption` if a part does not have one of them.
    """
    chosen = names or tuple(name for name in PARTS if name not in BY_NAME)
    for name in chosen:
        for option in options.keys() - inspect.signature(PARTS[name]).parameters.keys():
            raise UnknownOption(f"'{name}' has no option --{option}")
    results = {}
    for name in chosen:
        with tempfile.TemporaryDirectory(prefix="vinoqueue-bench-") as folder:
            results[name] = PARTS[name](Path(folder), **options)
    return results
