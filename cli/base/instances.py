"""Discovery of ``vinoqueue up`` instances on this machine.

The embedded Valkey of each instance has its own folder in the user's runtime directory
(``$XDG_RUNTIME_DIR/vinoqueue``, or ``vinoqueue-UID`` in the directory for temporary files). The folder's name starts
with the API's port. A folder without a listening socket was left by a killed instance and is ignored.
"""

import os
import shlex
import shutil
import socket
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
from click.core import ParameterSource

from cli.base.options import option
from cli.base.output import echo
from shared.runtime.settings import Settings

_SOCKET = "valkey.sock"
_CONNECT_TIMEOUT = 1.0
"""Timeout in seconds for connecting to an instance. Only a suspended instance takes noticeable time."""


class Instance(NamedTuple):
    """A running ``vinoqueue up``: its API port and its store URL."""

    port: str
    redis_url: str


def make_folder(port: int) -> Path:
    """Create a private folder for an instance whose API is on ``port``.

    Raises :class:`click.ClickException` if no private directory is available.
    """
    for directory in _directories():
        try:
            directory.mkdir(mode=0o700, exist_ok=True)
            if _is_private(directory):
                return Path(tempfile.mkdtemp(prefix=f"{port}-", dir=directory))
        except OSError:
            continue  # for example, another user's XDG_RUNTIME_DIR under sudo
    raise click.ClickException(
        f"No private directory for a socket: {', '.join(map(str, _directories()))} can't be created, or others may "
        "write there."
    )


def remove_folder(folder: Path) -> None:
    """Remove an instance's folder, and its parent directory if that is then empty."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.parent.rmdir()
    except OSError:
        pass  # another instance has its folder there


def socket_in(folder: Path) -> Path:
    """Return the path of the Valkey socket in an instance's folder."""
    return folder / _SOCKET


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
    start = [str(script)] if script.exists() else [sys.executable, "-P", "-m", "cli.main"]
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
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        yield Path(runtime) / "vinoqueue"
    yield Path(tempfile.gettempdir()) / f"vinoqueue-{os.geteuid()}"


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
