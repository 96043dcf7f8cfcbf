"""The output of subprocesses, as lines of this process's log."""

import logging
import os
import threading
from typing import IO

logger = logging.getLogger(__name__)

_LONGEST = 64 * 1024
"""Bytes after which a line is cut."""


def log_output(name: str) -> tuple[IO[bytes], threading.Thread]:
    """Return a file for the standard output and error of a subprocess, and the thread that logs each of its lines,
    whoever writes it: Python code, native libraries, or a crash.

    ``name`` is that of the subprocess in the log. Close the file when the subprocess has started. The thread ends when
    no process has the file any more. Raises :class:`OSError`.
    """
    reader, writer = os.pipe()
    thread = threading.Thread(target=_log_lines, args=(name, reader), name=f"output of the {name}", daemon=True)
    thread.start()
    return open(writer, "wb"), thread


def _log_lines(name: str, reader: int) -> None:
    with open(reader, "rb") as output:
        while line := output.readline(_LONGEST):
            if text := line.decode(errors="replace").rstrip():
                logger.warning("%s: %s", name, text)
