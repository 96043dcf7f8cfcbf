"""Discovery of ``vinoqueue up`` instances on this machine.

The embedded Valkey of each instance has its own folder in ``vinoqueue-UID``, in the directory for temporary files:
``$XDG_RUNTIME_DIR`` goes when its user logs out, and is used only if nothing else is private. The folder's name starts
with the API's port. The instance holds a lock of its folder (flock), so that systemd-tmpfiles spares it however old it
is. A folder without a lock and without a listening socket was left by a killed instance; the next one removes it.
"""

import fcntl
import os
import shlex
import shutil
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import click
from click.core import ParameterSource

from cli.base.options import option
from cli.base.output import echo
from shared.runtime.settings import Settings

_SOCKET = "valkey.sock"
_LONGEST = 107 - len(f"/65535-12345678/{_SOCKET}")
"""Maximum number of bytes of the path of a directory for instances: paths of sockets have up to 107."""

_STARTING = 60.0
"""Seconds in which an instance has locked its new folder."""

_CONNECT_TIMEOUT = 1.0
"""Timeout in seconds for connecting to an instance. Only a suspended instance takes noticeable time."""


class Instance(NamedTuple):
    """A running ``vinoqueue up``: its API port and its store URL."""

    port: str
    redis_url: str


class InstanceFolder:
    """The private folder of an instance."""

    def __init__(self, port: int) -> None:
        """Create the folder of an instance whose API is on ``port``, and remove those of killed instances.

        Raises :class:`click.ClickException` if no private directory is available.
        """
        for directory in _directories():
            try:
                directory.mkdir(mode=0o700, exist_ok=True)
                if _is_private(directory):
                    self._lock, self.path = _made_in(directory, port)
                    self.socket = self.path / _SOCKET
                    return
            except OSError:
                continue  # for example, a full disk
        raise click.ClickException(
            f"No private directory for a socket: {', '.join(map(str, _directories()))} can't be created, or others may "
            "write there. Set TMPDIR to a directory of your own with a short path."
        )

    def remove(self) -> None:
        """Remove the folder, and its parent directory if that is then empty."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)
        try:
            self.path.parent.rmdir()
        except OSError:
            pass  # another instance has its folder there


def _made_in(directory: Path, port: int) -> tuple[int, Path]:
    """Make a folder in ``directory``; return its lock, an open file, and its path."""
    for folder in directory.iterdir():
        with suppress(OSError):  # its instance runs, or removes it
            _remove_if_abandoned(folder)
    path = Path(tempfile.mkdtemp(prefix=f"{port}-", dir=directory))
    lock = os.open(path, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock, path


def _remove_if_abandoned(folder: Path) -> None:
    """Remove ``folder`` if its instance was killed. Raises :class:`OSError` if it is locked."""
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if time.time() - os.fstat(lock).st_mtime > _STARTING and not _listens(folder / _SOCKET):
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def running() -> list[Instance]:
    """Return this user's running instances, sorted by port."""
    found = (
        Instance(path.parent.name.partition("-")[0], f"unix://{path}")
        for directory in _directories()
        if _is_private(directory)
        for path in directory.glob(f"*/{_SOCKET}")
        if _listens(path)
    )
    return sorted(found, key=lambda instance: (instance.port.zfill(5), instance.redis_url))


def store_option() -> click.Option:
    """Return the ``--redis-url`` option of commands that inspect a running service.

    Its default is the store of a local ``vinoqueue up``. If several instances run, it is a usage error that lists them.
    """
    made = option(Settings, "redis_url")
    made.callback = lambda ctx, parameter, value: store_of(ctx, value)
    made.help = f"{made.help} Where 'vinoqueue up' runs on this machine, its store is the default."
    return made


def own_command(*arguments: str) -> str:
    """Return a shell command that runs this installation's ``vinoqueue`` with ``arguments`` from any directory."""
    script = Path(sys.executable).parent / "vinoqueue"
    start = [str(script)] if script.exists() else [sys.executable, "-P", "-m", "vinoqueue"]
    return shlex.join([*start, *arguments])


def store_of(ctx: click.Context, value: str) -> str:
    """Return the URL of a local ``vinoqueue up`` if ``value``, that of ``--redis-url``, is the default; else ``value``.

    Raises :class:`click.UsageError` if several instances run.
    """
    if ctx.get_parameter_source("redis_url") is not ParameterSource.DEFAULT:
        return value
    match running():
        case []:
            return value
        case [only]:
            echo(f"Using the store of 'vinoqueue up' on port {only.port}.", err=True)
            return only.redis_url
        case several:
            choices = "\n".join(f"  --redis-url {instance.redis_url}   (port {instance.port})" for instance in several)
            raise click.UsageError(f"'vinoqueue up' runs {len(several)} times on this machine. Choose one:\n{choices}")


def _directories() -> Iterator[Path]:
    """Yield the candidate directories for instance folders in order of preference."""
    for parent in filter(None, (tempfile.gettempdir(), os.environ.get("XDG_RUNTIME_DIR"))):
        path = Path(parent, f"vinoqueue-{os.geteuid()}")
        yield path if len(os.fsencode(path)) <= _LONGEST else Path("/tmp", path.name)  # noqa: S108


def _is_private(directory: Path) -> bool:
    """Whether ``directory`` is a directory owned by this user and inaccessible to other users."""
    try:
        found = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_CONNECT_TIMEOUT)
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True
