"""Which CPUs a process runs on where an engine computes on the CPU, too.

OpenVINO pins its threads while it infers: the one that steps to the first CPU that the engine may use, the others to
the rest. About half of a step is serial (docs/performance.md, tuning), and runs on that first CPU alone; meanwhile the
other threads wait. Whoever takes the first CPU for a moment holds up the step by as much, and on the others hardly.
"""

import os
import sys
from collections.abc import Set
from contextlib import suppress


def own_cpus() -> frozenset[int]:
    """The CPUs on which this process may run; none where the system does not tell."""
    return frozenset(os.sched_getaffinity(0)) if sys.platform == "linux" else frozenset()


def beside_engine(cpus: Set[int]) -> frozenset[int]:
    """Those of ``cpus``, which an engine may use, that are left to whatever runs beside it: all but the first, if there
    are more."""
    return frozenset(cpus - {min(cpus)}) if len(cpus) > 1 else frozenset(cpus)


def run_on(cpus: Set[int], pid: int = 0) -> None:
    """Have this process, or another one that has just begun, and what it starts from now on, run on ``cpus`` only; none
    mean that it stays where it is, as it does where the system does not allow it."""
    if sys.platform == "linux" and cpus:
        with suppress(OSError):
            os.sched_setaffinity(pid, cpus)
