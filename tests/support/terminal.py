"""A command in a terminal of its own."""

import os
import pty
import signal
import subprocess
import time
from collections.abc import Sequence

from tests.support.eventually import PATIENCE


def _take_terminal() -> None:
    """Make standard input the terminal of this session, whose processes Ctrl-C then reaches."""
    os.close(os.open(os.ttyname(0), os.O_RDWR))
    # The tests may run in the background of a shell, which ignores the signal.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """The command in a terminal: what is typed, and what is shown."""

    def __init__(self, command: Sequence[str], *, kind: str = "dumb") -> None:
        """``kind`` is the terminal's type, as in ``TERM``."""
        self._controller, terminal = pty.openpty()
        self._process = subprocess.Popen(
            command,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
            preexec_fn=_take_terminal,
            env={**os.environ, "TERM": kind, "COLUMNS": "200", "LINES": "60"},
        )
        os.close(terminal)
        os.set_blocking(self._controller, False)
        self._shown = ""

    def type(self, text: str) -> None:
        """Type ``text``."""
        os.write(self._controller, text.encode())

    def until(self, text: str) -> str:
        """Wait until ``text`` is shown; return everything up to it, which is then not shown again."""
        deadline = time.monotonic() + PATIENCE
        while text not in self._shown:
            assert time.monotonic() < deadline, self._shown
            try:
                self._shown += os.read(self._controller, 65536).decode(errors="replace")
            except BlockingIOError:
                time.sleep(0.02)
        before, _, self._shown = self._shown.partition(text)
        return before

    def ended(self) -> int:
        """Wait for the end of the command; return its exit code."""
        return self._process.wait(PATIENCE)

    def close(self) -> None:
        """End the command, if it has not ended."""
        self._process.kill()
        self._process.wait()
        os.close(self._controller)
