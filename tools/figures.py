"""The size of the project: ``python -m tools.figures`` prints it with its ceilings, and fails above one.

A change that needs more raises the ceiling in its own commit, and says there what the lines are for.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from shared.runtime.settings import UpSettings

ROOT = Path(__file__).resolve().parent.parent


class Figure(NamedTuple):
    """A count, and the most that it may be; None: it has no ceiling yet."""

    name: str
    now: int
    ceiling: int | None

    @property
    def over(self) -> bool:
        """Whether it is above its ceiling."""
        return self.ceiling is not None and self.now > self.ceiling


def figures(root: Path = ROOT) -> list[Figure]:
    """Count what is in the repository ``root``."""
    docs = list((root / "docs").rglob("*.md"))
    decisions = (root / "docs/decisions/README.md").read_text("utf-8").partition("## Ended")[0]
    return [
        Figure("lines of Python, product", _lines(root, ".py", "api", "worker", "shared", "cli"), PRODUCT),
        Figure("lines of Python, bench", _lines(root, ".py", "bench"), BENCH),
        Figure("lines of Python, tests, faults and tools", _lines(root, ".py", "tests", "faults", "tools"), TESTS),
        Figure("lines of YAML", _lines(root, ".yaml", ".") + _lines(root, ".yml", "."), YAML),
        Figure("settings", len(UpSettings.model_fields), SETTINGS),
        Figure("words of documentation", sum(len(page.read_text("utf-8").split()) for page in docs), WORDS),
        Figure("kB of changelog", (root / "CHANGELOG.md").stat().st_size // 1000, CHANGELOG),
        Figure("decisions in force", len(re.findall(r"^\| \[\d{4}\]", decisions, re.MULTILINE)), DECISIONS),
        Figure("terms in the glossary", (root / "docs/glossary.md").read_text("utf-8").count("\n| **"), TERMS),
    ]


PRODUCT, BENCH, TESTS = 57_710, 3_460, 61_940
YAML, SETTINGS, DECISIONS, TERMS = 1_450, 80, 18, 50
WORDS, CHANGELOG = 55_000, 12


def _lines(root: Path, ending: str, *folders: str) -> int:
    return sum(file.read_bytes().count(b"\n") for folder in folders for file in _files(root / folder, ending))


def _files(folder: Path, ending: str) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.name.startswith(".") or path.name in ("__pycache__", "node_modules", "build"):
            continue
        if path.is_dir():
            yield from _files(path, ending)
        elif path.suffix == ending:
            yield path


def main() -> int:
    """Print the table; return 1 if a figure is above its ceiling."""
    found = figures()
    print(f"{'figure':<42} {'now':>7} {'ceiling':>8}")
    for one in found:
        ceiling = "" if one.ceiling is None else f"{one.ceiling:,}"
        print(f"{one.name:<42} {one.now:>7,} {ceiling:>8}{'  above' if one.over else ''}")
    return int(any(one.over for one in found))


if __name__ == "__main__":
    sys.exit(main())
