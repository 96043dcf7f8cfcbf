"""Results as human-readable tables and as JSON."""

import json
import platform
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def median_and_spread(values: Sequence[float]) -> tuple[float, float, float]:
    """The median, the least and the most."""
    return statistics.median(values), min(values), max(values)


def with_spread(values: Sequence[float]) -> str:
    """The median, with the least and the most behind it."""
    median, least, most = median_and_spread(values)
    return f"{median:.2f} ({least:.2f}-{most:.2f})"


def ratios(values: Sequence[float], base: Sequence[float]) -> str:
    """``values`` as shares of those of ``base`` in the same turns: their median and spread."""
    return with_spread([value / other for value, other in zip(values, base, strict=True)])


def table(title: str, rows: Sequence[dict[str, object]]) -> str:
    """Rows with the same keys as a Markdown table."""
    heads = list(rows[0])
    cells = [[_text(row[head]) for head in heads] for row in rows]
    widths = [max(len(line[at]) for line in (heads, *cells)) for at in range(len(heads))]
    lines = [heads, ["-" * width for width in widths], *cells]
    body = "\n".join("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"
                     for line in lines)  # fmt: skip
    return f"\n{title}\n\n{body}\n"


def save(name: str, result: dict[str, Any]) -> Path:
    """Write one part's result, with the machine that it was measured on."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    machine = {"platform": platform.platform(), "processor": platform.processor(), "python": platform.python_version()}
    path.write_text(json.dumps({"machine": machine, **result}, indent=1))
    return path


def _text(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) and abs(value) < 100 else (
        f"{value:.0f}" if isinstance(value, float) else str(value)
    )  # fmt: skip
