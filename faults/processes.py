"""What the kernel knows of processes: children, open files, memory."""

import os
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True)
class Footprint:
    """What a process holds."""

    files: int
    threads: int
    megabytes: float


def footprint(pid: int) -> Footprint:
    """What process ``pid`` holds now. Raises :class:`OSError` when it is gone."""
    status = dict(
        line.split(":\t", 1) for line in (_PROC / str(pid) / "status").read_text().splitlines() if ":\t" in line
    )
    return Footprint(
        files=len(os.listdir(_PROC / str(pid) / "fd")),
        threads=int(status["Threads"]),
        megabytes=int(status["VmRSS"].split()[0]) / 1024,
    )


def child(parent: int, module: str) -> int | None:
    """The child process of ``parent`` that runs ``python -m module``, or None."""
    for entry in _PROC.iterdir():
        if entry.name.isdecimal():
            try:
                arguments = (entry / "cmdline").read_bytes().split(b"\0")
                owner = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
            if owner == parent and module.encode() in arguments:
                return int(entry.name)
    return None


def with_environment(text: str) -> list[int]:
    """The processes whose environment holds ``text``."""
    found = []
    for entry in _PROC.iterdir():
        if entry.name.isdecimal():
            try:
                if text.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found
