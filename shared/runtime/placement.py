"""CPU affinity of processes that share a host with a CPU engine.

OpenVINO pins its threads during inference: the stepping thread to the first CPU of the engine, the others to the rest.
About half of a step is serial and runs on the first CPU only, while the other threads wait. Other work on the first CPU
therefore delays the step by its full duration, and on the other CPUs hardly at all.
"""

import os
import sys
from collections.abc import Set
from contextlib import suppress


def own_cpus() -> frozenset[int]:
    """Return the CPUs on which this process may run; empty if unknown."""
    return frozenset(os.sched_getaffinity(0)) if sys.platform == "linux" else frozenset()


def cpus_for_others(cpus: Set[int]) -> frozenset[int]:
    """Return the CPUs for other processes on the host of an engine that may use ``cpus``: all but the first, if
    there are more."""
    return frozenset(cpus - {min(cpus)}) if len(cpus) > 1 else frozenset(cpus)


def run_on(cpus: Set[int], pid: int = 0) -> None:
    """Restrict this process, or the new process ``pid``, with its threads and future children to ``cpus``.

    Does nothing if ``cpus`` is empty or the system does not allow it.
    """
    if sys.platform == "linux" and cpus:
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{pid or os.getpid()}/task"):
                os.sched_setaffinity(int(thread), cpus)
