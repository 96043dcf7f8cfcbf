"""curves: draws what the other parts have measured, from bench/results/*.json into docs/images/*.png."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.report import RESULTS

IMAGES = Path(__file__).parent.parent / "docs" / "images"
_INSTALL = "drawing curves needs matplotlib: pip install 'matplotlib>=3.10'"

Rows = Sequence[dict[str, Any]]
RawConnection = tuple[str, list[float], list[float]]
"""A label, and the coordinates of its points."""


@dataclass(frozen=True)
class Curves:
    """One picture: its title, what its axes say, and its lines. The axis across is logarithmic."""

    name: str
    title: str
    across: str
    up: str
    lines: list[RawConnection]


def run(folder: Path) -> dict[str, Any]:
    """Draw every picture whose results are there, and return what was drawn. ``folder`` is not used.

    Raises :class:`ModuleNotFoundError` when matplotlib is missing.
    """
    drawn = []
    for name, make in (("overhead", overhead), ("peers", peers), ("plumbing", plumbing), ("scale", scale)):
        path = RESULTS / f"{name}.json"
        if not path.exists():
            print(f"curves: no {name} yet, run 'vinoqueue bench {name}' first")
            continue
        image = draw(make(json.loads(path.read_text())["rows"]), IMAGES)
        print(f"curves: {image} ({image.stat().st_size / 1000:.0f} kB)")
        drawn.append(image.name)
    return {"drawn": drawn}


def overhead(rows: Rows) -> Curves:
    """Tokens a second through the service and of the engine alone."""
    across = [float(row["concurrency"]) for row in rows]
    ours = [float(row["tokens/s"]) for row in rows]
    alone = [rate / row["ratio to the engine alone"] for rate, row in zip(ours, rows, strict=True)]
    lines = [("the engine alone", across, alone), ("vinoqueue", across, ours)]
    return Curves("overhead", "The service and the engine alone", "requests at once", "tokens a second", lines)


def peers(rows: Rows) -> Curves:
    """Tokens a second of each server with short prompts, where it could be measured."""
    measured = [row for row in rows if row["tokens/s"] != "" and not row.get("words more")]
    lines = []
    for server in dict.fromkeys(row["server"] for row in measured):
        points = [(float(row["concurrency"]), float(row["tokens/s"])) for row in measured if row["server"] == server]
        lines.append((server, [x for x, _ in points], [y for _, y in points]))
    return Curves("peers", "The same load through several servers", "requests at once", "tokens a second", lines)


def plumbing(rows: Rows) -> Curves:
    """Microseconds of CPU that a token costs each process."""
    across = [float(row["streams"]) for row in rows]
    lines = [
        (label, across, [float(row[head]) for row in rows])
        for label, head in (
            ("API", "API µs/token"),
            ("worker's supervisor", "supervisor µs/token"),
            ("store", "store µs/token"),
        )
    ]
    return Curves("plumbing", "CPU cost of a token outside the engine", "streams at once", "µs of CPU a token", lines)


def scale(rows: Rows) -> Curves:
    """Tokens a second by workers against the ideal, for each number of API replicas."""
    lines: list[RawConnection] = []
    for replicas in dict.fromkeys(row["replicas"] for row in rows):
        own = [row for row in rows if row["replicas"] == replicas]
        across = [float(row["workers"]) for row in own]
        if not lines:
            lines.append(("ideal", across, [float(row["ideal tokens/s"]) for row in own]))
        label = "1 API replica" if replicas == 1 else f"{replicas} API replicas"
        lines.append((label, across, [float(row["tokens/s"]) for row in own]))
    return Curves("scale", "Simulated workers on one machine", "workers", "tokens a second", lines)


def draw(curves: Curves, folder: Path) -> Path:
    """Draw on a white ground, which reads on a dark page too. Raises :class:`ModuleNotFoundError`."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise ModuleNotFoundError(_INSTALL, name="matplotlib") from None
    figure = Figure(figsize=(7, 4), dpi=110, facecolor="white", layout="constrained")
    axes = figure.add_subplot()
    for (label, across, up), colour, marker in zip(curves.lines, _COLOURS, _MARKERS, strict=False):
        axes.plot(across, up, marker=marker, color=colour, label=label, linewidth=1.8, markersize=5)
    ticks = sorted({x for _, across, _ in curves.lines for x in across})
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_title(curves.title, fontsize=11, loc="left")
    axes.set_xlabel(curves.across)
    axes.set_ylabel(curves.up)
    axes.grid(color="#dddddd", linewidth=0.7)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{curves.name}.png"
    # No date or version in the file, so that the same numbers make the same file.
    figure.savefig(path, metadata={"Software": None})
    return path


_COLOURS = ("#444444", "#0068b5", "#d1495b", "#e09f3e", "#4c956c", "#7b4fa3")
_MARKERS = "os^Dvx"
