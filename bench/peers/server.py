"""A peer's server as a process: started, waited for, ended."""

import socket
import subprocess
import time
from pathlib import Path

from bench.peers.environment import Unavailable
from tests.support.fleet import free_port

_PATIENCE = 120.0
"""Seconds for a server to load its model."""


class Server:
    """One running server on a port of 127.0.0.1."""

    def __init__(self, command: list[str], port: int, log: Path) -> None:
        """Start it and wait until a GET of ``/health`` is answered with 200.

        Raises :class:`Unavailable` when it ends, or is not ready in time.
        """
        self.port = port
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=log.parent
            )
        deadline = time.monotonic() + _PATIENCE
        while not _answers(port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise Unavailable(f"its server did not start: {self.last_words()}")
            time.sleep(0.1)

    def last_words(self) -> str:
        """The end of what it printed."""
        return " ".join(self._log.read_text(errors="replace").split()[-40:])

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def start(arguments: list[str], log: Path) -> Server:
    """Start a server on a free port; its command ends with ``--port`` and that.

    Raises :class:`Unavailable` as :class:`Server` does.
    """
    port = free_port()
    return Server([*arguments, "--host", "127.0.0.1", "--port", str(port)], port, log)


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n\r\n")
            return connection.recv(64)[9:12] == b"200"
    except OSError:
        return False
