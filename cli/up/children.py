"""The processes that ``up`` starts: each one a session of its own, tied to the life of ``up``."""

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from shared.runtime.placement import run_on

_PR_SET_PDEATHSIG = 1


class Child:
    """A process and whatever it starts itself.

    It leads a process group, so that the group can be ended as a whole, and a Ctrl-C in the terminal reaches only
    ``up``, which ends things in order. On Linux the kernel kills it when ``up`` dies, however that comes about.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        *,
        cpus: frozenset[int] = frozenset(),
    ) -> None:
        """``name`` is for people; ``environment`` is added to this process's own. It runs on ``cpus`` only, if any are
        given."""
        self.name = name
        self._command = command
        self._environment = environment or {}
        self._cpus = cpus
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """The process id of the current life, once started."""
        return self._process.pid if self._process else None

    async def start(self, output: IO[bytes] | None = None) -> None:
        """Start it; standard output and error go to ``output``, or to where those of ``up`` go.

        Raises :class:`OSError` when that fails.
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
        """Wait for its end, clear away what it left running, and return its exit code (negative: a signal)."""
        assert self._process is not None
        code = await self._process.wait()
        self._signal_group(signal.SIGKILL)
        return code

    async def stop(self, patience: float) -> None:
        """End it with SIGTERM; after ``patience`` seconds its whole group with SIGKILL. Never started: nothing."""
        if self._process is None:
            return
        if self._process.returncode is None:
            self._process.terminate()
        try:
            await asyncio.wait_for(self.wait(), patience)
        except TimeoutError:
            self.kill()
            await self.wait()

    def kill(self) -> None:
        """End it and its group at once."""
        if self._process is not None:
            self._signal_group(signal.SIGKILL)

    def _signal_group(self, number: signal.Signals) -> None:
        assert self._process is not None
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            pass  # nobody is left in it (macOS says so with EPERM)


def ending(code: int) -> str:
    """An exit code in words: 'exit code 1', or 'signal SIGKILL' for a negative one."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def _before_exec(parent: int, cpus: frozenset[int]) -> Callable[[], None] | None:
    """What a new process does before it becomes the command: have the kernel kill it when ``parent`` dies, and keep to
    ``cpus``."""
    if sys.platform != "linux":
        return None
    # Looked up here, because as little as possible should happen between fork and exec.
    prctl = ctypes.CDLL(None).prctl

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        run_on(cpus)

    return prepare
