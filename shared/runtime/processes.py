"""Command lines of child processes."""

import sys


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command line of ``python -m module arguments...`` for this interpreter.

    ``-P`` removes the working directory from the import path: ``api`` and ``worker`` are common names, and a package of
    that name in the working directory must not be run instead. ``PYTHONPATH`` still applies.
    """
    return [sys.executable, "-P", "-m", module, *arguments]
