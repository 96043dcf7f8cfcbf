"""How much of a while a process had for itself: on a crowded machine, less than the clock says."""

import os
from pathlib import Path

_TICK: int = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class CpuTime:
    """Measures a process by what Linux tells of it; elsewhere every second of the clock counts."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._used = self._cpu_seconds() or 0.0

    def of(self, elapsed: float) -> float:
        """Return how many of the ``elapsed`` seconds since the last call the process could use.

        While it computes, those are its seconds of CPU time; while one of its threads waits for a CPU, none; while it
        sleeps or is stopped, all.
        """
        used = self._cpu_seconds()
        if used is None:
            return elapsed
        computed, self._used = used - self._used, used
        if computed > 0:
            return min(elapsed, computed)
        return 0.0 if self._wants_cpu() else elapsed

    def _cpu_seconds(self) -> float | None:
        try:
            return cpu_seconds(self._pid)
        except (OSError, IndexError):
            return None

    def _wants_cpu(self) -> bool:
        try:
            return any(_fields(thread / "stat")[0] == "R" for thread in Path(f"/proc/{self._pid}/task").iterdir())
        except (OSError, IndexError):
            return False


def cpu_seconds(pid: int) -> float:
    """CPU time that all threads of a process have used, in steps of 10 ms, its children not counted.

    Raises :class:`OSError` when it is gone, or where there is no ``/proc``.
    """
    fields = _fields(Path(f"/proc/{pid}/stat"))
    return (int(fields[11]) + int(fields[12])) / _TICK


def _fields(stat: Path) -> list[str]:
    """The fields after the name, which may hold blanks: state, parent, and so on (proc(5))."""
    return stat.read_text().rpartition(")")[2].split()
