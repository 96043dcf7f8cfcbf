"""Starts ``vinoqueue`` commands as forks of a process that has imported their code.

Importing takes an API replica 1.5 s of CPU time and a worker 0.8 s, which is more than most tests need of them. A fork
is a process of its own from its command line on. The forking process, ``python -m tests.support.fork_server FD``, has
one thread and no event loop, and ends with the process that has started it.
"""

import atexit
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import IO

from shared.runtime.processes import die_with_parent, module_command

_MESSAGE = 1 << 17
"""Maximum size of a request in bytes: a command line and an environment."""


class Fork:
    """A forked process, with the interface of :class:`subprocess.Popen`."""

    def __init__(self, connection: socket.socket) -> None:
        """``connection`` delivers the process id, later the wait status."""
        self._connection = connection
        self.pid = int(connection.recv(16))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, negative for the signal that killed it; None while it runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; return the exit code. Raises :class:`subprocess.TimeoutExpired` after ``timeout`` s."""
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                status = self._connection.recv(16)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0) from None
            self._connection.close()
            self.returncode = os.waitstatus_to_exitcode(int(status))
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


def fork(arguments: Sequence[str], output: IO[bytes], environment: dict[str, str]) -> Fork:
    """Run a command in a fork, with ``output`` as standard output and standard error."""
    requests = _requests()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        request = json.dumps([arguments, environment, os.getcwd()]).encode()
        socket.send_fds(requests, [request], [theirs.fileno(), output.fileno()])
    return Fork(ours)


@cache
def _requests() -> socket.socket:
    """Start the forking process of this process; return the connection to it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = module_command("tests.support.fork_server", str(theirs.fileno()))
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
    threading.Thread(target=process.wait, daemon=True).start()
    atexit.register(ours.close)
    return ours


def _serve(requests: socket.socket) -> list[str] | None:
    """Fork for each request. Returns None at the end of the requests; in a fork, the arguments of its command."""
    living: dict[int, socket.socket] = {}

    def report(*_: object) -> None:
        # The next signal may interrupt this, and then the last child has been waited for already.
        with suppress(ChildProcessError):
            while living and (ended := os.waitpid(-1, os.WNOHANG))[0]:
                with living.pop(ended[0]) as connection:
                    _tell(connection, ended[1])

    signal.signal(signal.SIGCHLD, report)
    # A script's shell has what runs in its background ignore it, and the service obeys that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    while True:
        request, descriptors, *_ = socket.recv_fds(requests, _MESSAGE, 2)
        if not request:
            return None
        connection, output = socket.socket(fileno=descriptors[0]), descriptors[1]
        # A child may end before it is known.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        if (pid := os.fork()) == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            for end in (connection, requests, *living.values()):
                end.close()
            arguments, environment, folder = json.loads(request)
            _become(output, environment, folder)
            return list(arguments)
        _tell(connection, pid)
        living[pid] = connection
        os.close(output)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})


def _tell(connection: socket.socket, number: int) -> None:
    try:
        connection.send(str(number).encode())
    except OSError:
        pass  # nobody asks any more


def _become(output: int, environment: dict[str, str], folder: str) -> None:
    """Take the output, the environment and the working directory of a fork."""
    die_with_parent()
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)


if __name__ == "__main__":
    from api.page.static_files import load
    from cli.main import main

    for module in ("api.main", "cli.serve.commands", "worker.main", "worker.node.main"):
        import_module(module)
    load(enabled=True)  # compressed once, not in each replica
    gc.freeze()
    arguments = _serve(socket.socket(fileno=int(sys.argv[1])))
    if arguments is not None:
        main(arguments, prog_name="vinoqueue")
