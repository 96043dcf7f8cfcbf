"""The content of an image without Docker: what the Dockerfile copies and installs, run as in a container."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import IO

from shared.runtime.processes import die_with_parent
from tests.support.dockerfile import context, folders, requirements, variables
from tests.support.paths import ROOT
from tests.support.requirements import pins

_ENTER = """
set -e
root=$1 user=$2; shift 2
mount -t tmpfs -o mode=755 none "$root"
bind() { mkdir -p "$root$1"; mount --rbind "$2" "$root$1"; }
for folder in bin lib lib32 lib64 sbin; do if [ -L /$folder ]; then cp -P /$folder "$root"; fi; done
for folder in /bin /dev /etc /lib /lib64 /proc /sbin /sys /usr; do [ -L $folder ] || bind $folder $folder; done
mkdir -p "$root/tmp"; mount -t tmpfs -o mode=1777 none "$root/tmp"
while [ "$1" != -- ]; do bind "$1" "$2"; shift 2; done
shift
mount -o remount,ro none "$root"
exec chroot --userspec="$user" --groups= "$root" setpriv --pdeathsig KILL env -i "$@"
"""
"""In a mount namespace of its own: the system's libraries, Python, the image's packages and its volumes, in a read-only
root. Nothing of the home folders or of the repository is there."""


@cache
def can_mount() -> bool:
    """Whether this user may make a root folder of its own for a process."""
    return subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode == 0


def copy_sources(names: Iterable[str], folder: Path) -> None:
    """Copy files and folders of the repository to the same places in ``folder``."""
    for name in names:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)


def sources(image: str) -> frozenset[str]:
    """What the wheel of an image is built from."""
    return frozenset(source for source in context(image) if not source.startswith("requirements/"))


def wheel(folder: Path, sources: Iterable[str]) -> Path:
    """Build the wheel in ``folder`` from a copy of ``sources``, because setuptools writes into the folder it builds."""
    source = folder / "source"
    source.mkdir(parents=True)
    copy_sources(sources, source)
    options = ("--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(folder / "dist"))
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(source)], check=True, capture_output=True)
    (built,) = (folder / "dist").glob("*.whl")
    return built


class Image:
    """An environment with the packages of an image and no others, and folders in place of its volumes."""

    def __init__(self, name: str, folder: Path, user: str, built: Path) -> None:
        """Make it in ``folder`` with the wheel ``built``. ``user`` is UID:GID; without the right to mount, this
        process's user runs it."""
        self._user, self._root, self._folder = user, folder / "root", folder / "opt"
        self._root.mkdir(parents=True)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(self._folder)], check=True)
        python = self._folder / "bin" / "python"
        (packages,) = self._folder.glob("lib/python*/site-packages")
        for file in requirements(name):
            assert file in context(name)
            for distribution in pins(Path(file).stem):
                _link(metadata.distribution(distribution), packages)
        install = ("install", "--no-deps", "--no-index", str(built))
        subprocess.run([sys.executable, "-m", "pip", "--python", python, *install], check=True, capture_output=True)
        self.volumes: dict[str, Path] = {}
        for command in folders(name):
            self.volumes[command[-1]] = folder / "volumes" / command[-1][1:]
            owner = [] if os.geteuid() == 0 else ["-o", str(os.getuid()), "-g", str(os.getgid())]
            subprocess.run([*command[:-1], *owner, self.volumes[command[-1]]], check=True)
        self._variables = variables(name)

    def start(
        self, command: Sequence[str], output: int | IO[bytes], environment: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a command of the environment. ``environment`` is added to the image's."""
        given = self._variables | (environment or {})
        given["PATH"] = f"{self._folder}/bin:/usr/bin:/bin"
        if can_mount():
            binds = {str(self._folder): self._folder, sys.base_prefix: Path(sys.base_prefix)} | self.volumes
            arguments = [str(argument) for bind in binds.items() for argument in bind]
            enter = ["unshare", "--mount", "sh", "-c", _ENTER, "sh", str(self._root), self._user, *arguments, "--"]
        else:
            inside = {name: str(folder) for name, folder in self.volumes.items()}
            given = {name: inside.get(value, value) for name, value in given.items()}
            enter = ["env", "-i"]
        return subprocess.Popen(
            [*enter, *(f"{name}={value}" for name, value in given.items()), *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=die_with_parent,
        )

    def run(self, *command: str) -> str:
        """Run a command to its end; return what it prints. Fails if it fails."""
        process = self.start(command, subprocess.PIPE)
        printed = process.communicate()[0].decode()
        assert process.returncode == 0, printed
        return printed


def _link(distribution: metadata.Distribution, packages: Path) -> None:
    """Add an installed distribution to the folder ``packages``, with hard links where these are possible.

    Models are copied: a new link changes the status of a file, and workers that serve it would say that it has changed.
    """
    for file in distribution.files or ():
        source, target = Path(str(distribution.locate_file(file))), packages / file
        if ".." in file.parts or not source.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            if source.suffix != ".gguf":
                os.link(source, target)
                continue
        except OSError:
            pass
        shutil.copy2(source, target)
