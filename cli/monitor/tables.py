"""Tables as text."""

from collections.abc import Sequence
from typing import NamedTuple


class Table(NamedTuple):
    """A table: its head, its rows, and the text to show if there are none."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    empty: str


def aligned(table: Table) -> str:
    """Return the table with columns of equal width, or its text if it has no rows."""
    if not table.rows:
        return table.empty
    lines = [table.head, *table.rows]
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
