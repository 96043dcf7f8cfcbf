"""Progress of work that takes time: bars and stages, drawn with rich on a terminal, and plain lines elsewhere.

Rich is optional. Without it, or where the output is not a terminal, a bar prints a line every ten seconds and a stage
prints one line.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, TextIO

from cli.base.output import echo

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

Unit = Literal["", "bytes"]

_LINE_EVERY = 10.0
"""Seconds between two lines about the same bar."""

_REDRAWS = 4.0
"""Redraws per second. The work needs the CPUs."""


def terminal(stream: TextIO) -> "Console | None":
    """Return a console for ``stream``, or ``None`` unless it is a terminal that can be drawn on and rich is there."""
    if not stream.isatty():
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    console = Console(file=stream)
    return None if console.is_dumb_terminal else console


@contextmanager
def bar(label: str, total: int, *, unit: Unit = "") -> Iterator[Callable[[int], None]]:
    """Show how much of ``total`` is done, on standard error. Yields the function to call with each amount done."""
    console = terminal(sys.stderr)
    if console is None:
        yield _Lines(label, total, unit).advance
        return
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn() if unit == "bytes" else MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, refresh_per_second=_REDRAWS) as progress:
        task = progress.add_task(label, total=total)
        yield lambda amount: progress.advance(task, amount)


class _Lines:
    def __init__(self, label: str, total: int, unit: Unit) -> None:
        self._label = label
        self._total = total
        self._unit = f" {unit}" if unit else ""
        self._done = 0
        self._printed = time.monotonic()

    def advance(self, amount: int) -> None:
        """Add ``amount`` to what is done, and print a line if the last one is old."""
        self._done += amount
        if time.monotonic() - self._printed >= _LINE_EVERY:
            self._printed = time.monotonic()
            echo(f"{self._label}: {self._done:,} of {self._total:,}{self._unit}", err=True)


class Stages:
    """Shows the current stage of some work, on a terminal with a spinner and the elapsed time.

    A context manager. On a terminal, a stage's line gets its duration at its end.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        """``stream`` is where to show it; by default standard error."""
        self._stream = stream or sys.stderr
        self._console = terminal(self._stream)
        self._drawn: Progress | None = None
        self._text = ""
        self._started_at = 0.0

    def __enter__(self) -> "Stages":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def begin(self, text: str, *, silent: bool = True) -> None:
        """End the current stage and begin another. Work that is not ``silent`` shows its own progress."""
        self.end()
        if self._console is None or not silent:
            echo(text, file=self._stream)
            return
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._text, self._started_at = text, time.monotonic()
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
        self._drawn = Progress(*columns, console=self._console, transient=True, refresh_per_second=_REDRAWS)
        self._drawn.add_task(text, total=None)
        self._drawn.start()

    def end(self) -> None:
        if self._drawn is not None:
            self._drawn.stop()
            self._drawn = None
            echo(f"{self._text}  {time.monotonic() - self._started_at:.1f} s", file=self._stream)
