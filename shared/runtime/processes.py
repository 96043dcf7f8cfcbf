"""Child processes: their command lines, their end, the end of their parent, and the CPUs beside an engine.

OpenVINO pins its threads during inference: the stepping thread to the first CPU of the engine, the others to the rest.
About half of a step is serial and runs on the first CPU only, while the other threads wait. Other work on the first CPU
therefore delays the step by its full duration, and on the other CPUs hardly at all.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Set
from contextlib import suppress

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None
"""Loaded here because as little as possible should run between fork and exec."""


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command line of ``python -m module arguments...`` for this interpreter.

    ``-P`` removes the working directory from the import path: ``api`` and ``worker`` are common names, and a package of
    that name in the working directory must not be run instead. ``PYTHONPATH`` still applies.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies. Does nothing on systems other than Linux.

    May be called between fork and exec. Has no effect if the parent has already died.
    """
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def exit_description(code: int) -> str:
    """Return how a process ended, to complete a sentence that starts with its name. A negative ``code`` is the signal
    that killed it."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def own_cpus() -> frozenset[int]:
    """Return the CPUs on which this process may run; empty if unknown."""
    return frozenset(os.sched_getaffinity(0)) if sys.platform == "linux" else frozenset()


def cpus_for_others(cpus: Set[int]) -> frozenset[int]:
    """Return the CPUs for other processes on the host of an engine that may use ``cpus``: all but the first, if
    there are more."""
    return frozenset(cpus - {min(cpus)}) if len(cpus) > 1 else frozenset(cpus)


def run_on(cpus: Set[int], pid: int = 0) -> None:
    """Restrict this process, or the new process ``pid``, and its future children to ``cpus``.

    Does nothing if ``cpus`` is empty or the system does not allow it.
    """
    if sys.platform == "linux" and cpus:
        with suppress(OSError):
            os.sched_setaffinity(pid, cpus)
