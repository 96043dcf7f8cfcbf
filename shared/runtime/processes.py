"""Command lines that run a Python module as a child process."""

import sys


def module_command(module: str, *arguments: str) -> list[str]:
    """The command line of ``python -m module arguments...`` in this interpreter.

    ``-P`` keeps the working directory off the import path: ``api`` and ``worker`` are common names, and a package of
    that name in the directory where ``vinoqueue`` was started must not run in place of ours. ``PYTHONPATH`` still
    counts.
    """
    return [sys.executable, "-P", "-m", module, *arguments]
