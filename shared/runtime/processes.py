"""Child processes: their command lines, their end, and the end of their parent."""

import ctypes
import signal
import sys

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None
"""Loaded here because as little as possible should run between fork and exec."""


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command line of ``python -m module arguments...`` for this interpreter.

    ``-P`` removes the working directory from the import path: ``api`` and ``worker`` are common names, and a package of
    that name in the working directory must not be run instead. :mod:`vinoqueue` has removed ``PYTHONPATH``.
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
