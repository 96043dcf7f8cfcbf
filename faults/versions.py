"""Versions to run: the source of a git revision, or of this version with the next protocol version."""

import io
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

import shared

_SOURCE = Path(shared.__file__).parents[1]
_PACKAGES = ("api", "cli", "shared", "worker")
_NEXT_PROTOCOL = "\nREADABLE = (PROTOCOL, PROTOCOL + 1)\nPROTOCOL += 1\n"
_NEXT_VERSION = '\nVERSION += "+next"\n'


def source_of(revision: str) -> str:
    """Return a new folder with the source of a git revision."""
    folder = tempfile.mkdtemp(prefix="vinoqueue-first-")
    archive = subprocess.run(["git", "archive", revision], capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder


def next_version(folder: Path) -> str:
    """Copy this source to ``folder``, as a release that raises the protocol version; return the folder."""
    for package in _PACKAGES:
        shutil.copytree(_SOURCE / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    for module, change in (("protocol/version.py", _NEXT_PROTOCOL), ("runtime/version.py", _NEXT_VERSION)):
        with (folder / "shared" / module).open("a") as file:
            file.write(change)
    return str(folder)
