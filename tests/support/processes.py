"""Process trees."""

from pathlib import Path


def family(pid: int) -> list[int]:
    """A process and all its living descendants."""
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            found += map(int, task.read_text().split())
    return found
