"""Generated parts of files: the lines between two markers."""

import sys
from collections.abc import Callable
from pathlib import Path


def replaced(text: str, begin: str, end: str, content: str) -> str:
    """Return ``text`` with ``content`` between the lines ``begin`` and ``end``.

    Raises :class:`ValueError` if a marker is missing.
    """
    head, found_begin, rest = text.partition(begin)
    _, found_end, tail = rest.partition(end)
    if not found_begin or not found_end:
        raise ValueError(f"the file needs the lines {begin!r} and {end!r}")
    return f"{head}{begin}{content}{end}{tail}"


def rewrite(current: Callable[[str], str]) -> None:
    """Replace the text of each file on the command line by what ``current`` returns for it."""
    for path in map(Path, sys.argv[1:]):
        path.write_text(current(path.read_text(encoding="utf-8")), encoding="utf-8")
