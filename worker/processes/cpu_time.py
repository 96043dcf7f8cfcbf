"""CPU time of a process: on an overloaded machine, less than the elapsed time."""

import os
from pathlib import Path

_TICK: int = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class CpuTime:
    """Measures the CPU time of a process from ``/proc``. Without it, all elapsed time counts."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._used = self._cpu_seconds() or 0.0

    def usable(self, elapsed: float) -> float:
        """Return how many of the ``elapsed`` seconds since the last call the process could use.

        If it computed, that is its CPU time. If it did not, it is nothing while a thread waits for a CPU, and all of
        ``elapsed`` while the process sleeps or is stopped.
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
    """Return the CPU time of all threads of a process in seconds, without its children. Resolution: 10 ms.

    Raises :class:`OSError` when the process has ended, or without ``/proc``.
    """
    fields = _fields(Path(f"/proc/{pid}/stat"))
    return (int(fields[11]) + int(fields[12])) / _TICK


def _fields(stat: Path) -> list[str]:
    """Return the fields after the process name, which may contain spaces: state, parent, ... (proc(5))."""
    return stat.read_text().rpartition(")")[2].split()
