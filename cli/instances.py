"""Instances of ``vinoqueue up`` on this machine: where each keeps its socket, and how other commands find it.

The embedded Valkey of each instance has a folder of its own in the user's runtime directory
(``$XDG_RUNTIME_DIR/vinoqueue``, or ``vinoqueue-UID`` in the directory for temporary files). The folder's name begins
with the API's port. A folder whose socket nobody listens on was left by a killed instance, and is ignored.
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

from cli.options import option
from shared.runtime.settings import Settings

_SOCKET = "valkey.sock"
_CONNECT_TIMEOUT = 1.0
"""Seconds that an instance may take to accept a connection; it does so at once, unless it is stopped."""


class Instance(NamedTuple):
    """A running ``vinoqueue up``: the port of its API, and the URL of its store."""

    port: str
    redis_url: str


def make_folder(port: int) -> Path:
    """Make a private folder for an instance whose API is on ``port``.

    Raises :class:`click.ClickException` when there is no safe place for it.
    """
    for place in _places():
        try:
            place.mkdir(mode=0o700, exist_ok=True)
            if _is_private(place):
                return Path(tempfile.mkdtemp(prefix=f"{port}-", dir=place))
        except OSError:
            continue  # such as an XDG_RUNTIME_DIR of another user, as under sudo
    raise click.ClickException(
        f"No private directory for a socket: {', '.join(map(str, _places()))} can't be made, or others may write there."
    )


def remove_folder(folder: Path) -> None:
    """Remove an instance's folder, and the directory around it if it was the last one."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.parent.rmdir()
    except OSError:
        pass  # another instance has its folder there


def socket_in(folder: Path) -> Path:
    """The socket of the instance's Valkey."""
    return folder / _SOCKET


def running() -> list[Instance]:
    """The instances of this user that are running now, by port."""
    found = (
        Instance(path.parent.name.partition("-")[0], f"unix://{path}")
        for place in _places()
        if _is_private(place)
        for path in place.glob(f"*/{_SOCKET}")
        if _listens(path)
    )
    return sorted(found, key=lambda one: (one.port.zfill(5), one.redis_url))


def store_option() -> click.Option:
    """``--redis-url`` of commands that look at a running service; its default is the store of a local ``vinoqueue up``.

    Where several run, the command ends and names them.
    """
    made = option(Settings, "redis_url")
    made.callback = _find
    made.help = f"{made.help} Where 'vinoqueue up' runs on this machine, its store is the default."
    return made


def own_command(*arguments: str) -> str:
    """A shell command that runs this installation's ``vinoqueue`` with ``arguments``, in whatever directory."""
    script = Path(sys.executable).parent / "vinoqueue"
    start = [str(script)] if script.exists() else [sys.executable, "-P", "-m", "cli.main"]
    return shlex.join([*start, *arguments])


def _find(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    if ctx.get_parameter_source(str(parameter.name)) is not ParameterSource.DEFAULT:
        return value
    match running():
        case []:
            return value
        case [only]:
            click.echo(f"Using the store of 'vinoqueue up' on port {only.port}.", err=True)
            return only.redis_url
        case several:
            choices = "\n".join(f"  --redis-url {one.redis_url}   (port {one.port})" for one in several)
            raise click.UsageError(f"'vinoqueue up' runs {len(several)} times on this machine. Choose one:\n{choices}")


def _places() -> Iterator[Path]:
    """Directories for the folders of instances, the best first."""
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        yield Path(runtime) / "vinoqueue"
    yield Path(tempfile.gettempdir()) / f"vinoqueue-{os.geteuid()}"


def _is_private(place: Path) -> bool:
    """Whether ``place`` is a directory of this user, and no other user can put a socket there."""
    try:
        found = place.lstat()
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
