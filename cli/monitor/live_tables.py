"""Tables that are redrawn in place on a terminal, with rich."""

import time
from collections.abc import Callable, Iterable
from typing import NoReturn

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cli.monitor.tables import Table as TextTable

_STYLES = {"serving": "green", "loading": "yellow", "draining": "blue", "failing": "bold red"}
_NUMERIC = frozenset({"PID", "SLOTS", "TOKENS/S", "CACHE", "UP", "WAITING", "IN FLIGHT", "WORKERS", "STREAMS"})


def show(console: Console, read: Callable[[], Iterable[TextTable]], *, every: float) -> NoReturn:
    """Draw the tables that ``read`` returns, and redraw them ``every`` seconds until interrupted.

    An error of the first reading is raised; later ones are shown below the last tables.
    """
    shown: RenderableType = drawn(read())
    with Live(shown, console=console, auto_refresh=False) as live:
        while True:
            live.refresh()
            time.sleep(every)
            try:
                shown = drawn(read())
                live.update(shown)
            except click.ClickException as error:
                live.update(Group(shown, Text(error.message, style="bold red")))


def drawn(tables: Iterable[TextTable]) -> Group:
    """Return the tables as rich draws them, with the time of day below."""
    parts: list[RenderableType] = []
    for table in tables:
        if not table.rows:
            parts += [Text(table.empty), Text()]
            continue
        made = Table(box=None, pad_edge=False, header_style="bold")
        for name in table.head:
            made.add_column(name, justify="right" if name in _NUMERIC else "left", overflow="ellipsis", no_wrap=True)
        for row in table.rows:
            made.add_row(*(Text(cell, style=_STYLES.get(cell.partition(":")[0], "")) for cell in row))
        parts += [made, Text()]
    return Group(*parts, Text(time.strftime("%H:%M:%S"), style="dim"))
