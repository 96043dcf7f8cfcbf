"""The supervisor's handle of a subprocess: its start, its messages, its CPU time and its end."""

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Generic, TypeVar, cast

import msgspec

from shared.runtime.processes import exit_description, module_command
from worker.processes.channel import CHANNEL_VARIABLE
from worker.processes.messages import READ_SIZE, LoadFailed, MessageReader, encode_message

_REST = 1.0
"""Seconds to wait until the last output of a process is logged; another process may have its pipe."""

_TICK: int = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class CpuTime:
    """Measures the CPU time of a process from ``/proc``. Without it, all elapsed time counts."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._used = self._cpu_seconds() or 0.0

    def usable(self, elapsed: float) -> float:
        """Return how many of the ``elapsed`` seconds since the last call the process could use.

        If it computed, that is its CPU time. If it did not, it is nothing while a thread waits for a CPU, and all of
        ``elapsed`` while the process sleeps or is stopped.
        """
        used = self._cpu_seconds()
        if used is None:
            return elapsed
        computed, self._used = used - self._used, used
        if computed > 0:
            return min(elapsed, computed)
        return 0.0 if self._wants_cpu() else elapsed

    def _cpu_seconds(self) -> float | None:
        try:
            return cpu_seconds(self._pid)
        except (OSError, IndexError):
            return None

    def _wants_cpu(self) -> bool:
        try:
            return any(_fields(thread / "stat")[0] == "R" for thread in Path(f"/proc/{self._pid}/task").iterdir())
        except (OSError, IndexError):
            return False


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of all threads of a process in seconds, without its children. Resolution: 10 ms.

    Raises :class:`OSError` when the process has ended, or without ``/proc``.
    """
    fields = _fields(Path(f"/proc/{pid}/stat"))
    return (int(fields[11]) + int(fields[12])) / _TICK


def _fields(stat: Path) -> list[str]:
    """Return the fields after the process name, which may contain spaces: state, parent, ... (proc(5))."""
    return stat.read_text().rpartition(")")[2].split()


In = TypeVar("In")
Out = TypeVar("Out")
Ready = TypeVar("Ready")


class LoadError(Exception):
    """The subprocess can't load. The message is human-readable."""


class LoadInterrupted(LoadError):
    """The subprocess ended before it had loaded."""


class ChildProcess(Generic[In, Out, Ready]):
    """A subprocess that receives ``Out`` messages and sends ``In`` messages.

    When it has loaded, it sends its ``Ready`` message; if it can't load, :class:`LoadFailed`, and exits. On Linux, the
    kernel kills it when its parent dies, however it dies. It is never restarted. Always call :meth:`stop` in the end.
    """

    def __init__(
        self,
        module: str,
        options: msgspec.Struct,
        decoder: msgspec.msgpack.Decoder[In],
        *,
        name: str,
        ready: type[Ready],
        on_message: Callable[[In], None],
    ) -> None:
        """``module`` is run as ``python -m module OPTIONS``, with ``options`` as JSON, and must open
        :meth:`worker.processes.channel.ChildChannel.inherited`.

        ``name`` completes error messages. ``on_message`` is called with every message except ``Ready`` and
        :class:`LoadFailed`, from the event loop's read callback; :class:`msgspec.Raw` fields of the message are valid
        only during the call.
        """
        self._command = module_command(module, msgspec.json.encode(options).decode())
        self._name = name
        self._ready = ready
        self._on_message = on_message
        self._protocol = _Protocol(MessageReader(decoder), self._on_load_message, self._on_end)
        self._process: asyncio.subprocess.Process | None = None
        self._output: threading.Thread | None = None
        self._load_result: Ready | LoadFailed | None = None
        self._load_ended = asyncio.Event()
        """Set once it has loaded, and while it does not run."""
        self._ended = asyncio.Event()
        """Set while it does not run."""
        self._on_end(None)
        self._error: Exception | None = None
        self.exit_code: int | None = None
        """Set once :meth:`stop` has returned. Negative: the signal that killed the process."""

    @property
    def pid(self) -> int | None:
        """Process id, once started."""
        return self._process.pid if self._process else None

    async def start(self) -> None:
        """Start the process. Raises :class:`OSError` when that fails."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                output, self._output = log_output(self._name)
                with output:
                    self._process = await asyncio.create_subprocess_exec(
                        *self._command,
                        pass_fds=[theirs.fileno()],
                        env={**os.environ, CHANNEL_VARIABLE: str(theirs.fileno())},
                        stdin=asyncio.subprocess.DEVNULL,
                        stdout=output,
                        stderr=output,
                    )
            self._ended.clear()
            self._load_ended.clear()
            await asyncio.get_running_loop().create_connection(lambda: self._protocol, sock=ours)
        except BaseException:
            ours.close()
            raise

    async def loaded(self) -> Ready:
        """Wait until the process has loaded; return its ``Ready`` message. Raises :class:`LoadError`, or
        :class:`LoadInterrupted` when the process ends first."""
        await self._load_ended.wait()
        if isinstance(self._load_result, self._ready):
            return self._load_result
        if isinstance(self._load_result, LoadFailed):
            raise LoadError(self._load_result.message)
        await self.stop()
        raise LoadInterrupted(f"the {self._name} {self.exit_description} while it loaded")

    def send(self, message: Out) -> None:
        """Queue one message.

        If the process is dead, the message is dropped silently; :meth:`ended` reports the death.
        """
        self._protocol.send(encode_message(message))

    async def ended(self) -> None:
        """Wait until the process closes its end of the channel or dies. Returns at once if it was never started.

        Raises what ``on_message`` has raised, after which no more messages are delivered.
        """
        await self._ended.wait()
        if self._error is not None:
            raise self._error

    async def stop(self, patience: float = 2.0) -> None:
        """Close the channel, which ends the process; kill it after ``patience`` seconds, or when this is cancelled.

        Returns, or raises the cancellation, when the process has ended. May be called again.
        """
        self._protocol.close()
        if self._process is None:
            self.exit_code = 0
            return
        try:
            async with asyncio.timeout(patience):
                await self._process.wait()
        except TimeoutError:
            pass
        finally:
            self.kill()
            self.exit_code = await self._process.wait()
            if self._output is not None:
                await asyncio.to_thread(self._output.join, _REST)

    def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    @property
    def exit_description(self) -> str:
        """How it ended, to complete a sentence that starts with its name."""
        return "is running" if self.exit_code is None else exit_description(self.exit_code)

    def _on_load_message(self, message: In) -> None:
        """Handle a message that arrives before ``Ready``."""
        if isinstance(message, self._ready | LoadFailed):
            self._load_result = message
            self._load_ended.set()
            self._protocol.on_message = self._on_message
        else:
            self._on_message(message)

    def _on_end(self, error: Exception | None) -> None:
        self._error = error
        self._ended.set()
        self._load_ended.set()


class _Protocol(asyncio.BufferedProtocol, Generic[In]):
    """Passes messages to ``on_message`` as they are read, without waking a task. Calls ``on_end`` once, at the end of
    the stream or with the error of ``on_message``."""

    def __init__(
        self,
        reader: MessageReader[In],
        on_message: Callable[[In], None],
        on_end: Callable[[Exception | None], None],
    ) -> None:
        self._reader = reader
        self.on_message = on_message
        self._on_end = on_end
        self._buffer = memoryview(bytearray(READ_SIZE))
        """Reused for every read: allocating a buffer would cost more than decoding a step's report."""
        self._transport: asyncio.Transport | None = None
        self._failed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._failed:
            return
        # Malformed bytes are the process's fault: the event loop logs the error and closes the connection.
        messages = self._reader.feed(self._buffer[:nbytes])
        try:
            for message in messages:
                self.on_message(message)
        except Exception as error:
            self._failed = True
            self._on_end(error)

    def connection_lost(self, error: Exception | None) -> None:
        if not self._failed:
            self._on_end(None)

    def send(self, data: bytes) -> None:
        """Queue ``data``, unless the connection is closed."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        """Close the connection, if it was opened, once the queued data is sent."""
        if self._transport is not None:
            self._transport.close()


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
