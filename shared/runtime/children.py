"""Child processes of a supervisor. Each runs in its own session and is killed if its parent dies."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from shared.runtime.placement import run_on
from shared.runtime.processes import die_with_parent


class Child:
    """A child process and its descendants.

    It leads its own process group. So the whole group can be killed at once, and a Ctrl-C in the terminal reaches only
    its parent, which stops its children in order. On Linux the kernel kills the process when the parent dies for any
    reason.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        *,
        cpus: frozenset[int] = frozenset(),
    ) -> None:
        """``name`` appears in messages. ``environment`` extends this process's environment. ``cpus``, unless empty, is
        the CPU affinity of the process."""
        self.name = name
        self._command = command
        self._environment = environment or {}
        self._cpus = cpus
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """Process id since the last start, or None before the first."""
        return self._process.pid if self._process else None

    async def start(self, output: IO[bytes] | None = None) -> None:
        """Start the process, with standard output and error redirected to ``output`` or else inherited from the parent.

        Raises :class:`OSError` if it can't be started.
        """
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **self._environment},
            start_new_session=True,
            preexec_fn=_before_exec(os.getpid(), self._cpus),
        )

    async def wait(self) -> int:
        """Wait for the process to exit and kill its remaining descendants.

        Returns the exit code; a negative one is the number of the signal that killed it.
        """
        assert self._process is not None
        code = await self._process.wait()
        self._signal_group(signal.SIGKILL)
        return code

    async def stop(self, patience: float) -> None:
        """Stop the process with SIGTERM, and after ``patience`` seconds its group with SIGKILL.

        Does nothing if it was never started.
        """
        if self._process is None:
            return
        self.terminate()
        try:
            async with asyncio.timeout(patience):
                await self.wait()
        except TimeoutError:
            self.kill()
            await self.wait()

    def terminate(self) -> None:
        """Send SIGTERM to the process if it runs."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()

    def kill(self) -> None:
        """Kill the process and its group."""
        if self._process is not None:
            self._signal_group(signal.SIGKILL)

    def _signal_group(self, number: signal.Signals) -> None:
        assert self._process is not None
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            pass  # the group is empty (macOS reports EPERM)


def _before_exec(parent: int, cpus: frozenset[int]) -> Callable[[], None] | None:
    """Return the function that runs in the child between fork and exec, or None on other systems than Linux.

    It has the child killed when ``parent`` dies, and sets its CPU affinity to ``cpus``.
    """
    if sys.platform != "linux":
        return None

    def prepare() -> None:
        die_with_parent()
        if os.getppid() != parent:
            os._exit(1)
        run_on(cpus)

    return prepare
